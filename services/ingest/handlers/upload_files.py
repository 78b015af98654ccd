"""Several files in one upload, each a document of its own."""

import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol
from uuid import UUID

from kbmesh.auth import Principal
from kbmesh.errors import KbmeshError, Unavailable
from services.ingest.domain.models import Document
from services.ingest.handlers.documents import UploadForm, UploadLimits, upload_document
from services.ingest.handlers.knowledge_bases import editable_knowledge_base
from services.ingest.ports import Documents, KnowledgeBases, ObjectStore


class IncomingFile(Protocol):
    @property
    def filename(self) -> str: ...

    @property
    def body(self) -> AsyncIterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a file: as upload_document returns, or raises. No `filename`: of what could not be read."""

    filename: str | None
    result: tuple[Document, bool] | KbmeshError


async def upload_files(
    knowledge_bases: KnowledgeBases,
    documents: Documents,
    store: ObjectStore,
    limits: UploadLimits,
    principal: Principal,
    kb_id: UUID,
    files: AsyncIterator[IncomingFile],
    form: Callable[[str], UploadForm],
    *,
    idempotency_key: str | None = None,
) -> list[Outcome]:
    """Uploads one file after the other, as upload_document does; a refusal of one does not concern the others.

    Args:
        form: what the caller says about the file of a name.

    Raises:
        NotFound, PermissionDenied: as upload_document, for the knowledge base.
        Unavailable: the database or the store is down; what came before is accepted, and may be sent again.
    """
    await editable_knowledge_base(knowledge_bases, principal, kb_id)
    outcomes: list[Outcome] = []
    try:
        async for file in files:
            try:
                result: tuple[Document, bool] | KbmeshError = await upload_document(
                    knowledge_bases,
                    documents,
                    store,
                    limits,
                    principal,
                    kb_id,
                    file.body,
                    partial(form, file.filename),
                    idempotency_key=_key(idempotency_key, len(outcomes)),
                )
            except Unavailable:
                raise
            except KbmeshError as error:
                result = error
            outcomes.append(Outcome(file.filename, result))
    except Unavailable:
        raise
    except KbmeshError as error:
        # What broke in the middle of a file is told there.
        if not outcomes or outcomes[-1].result is not error:
            outcomes.append(Outcome(None, error))
    return outcomes


def _key(key: str | None, place: int) -> str | None:
    """A key of its own for each file; the first has the caller's, as it has when it is the only one."""
    if key is None or place == 0:
        return key
    return hashlib.sha256(f"{place}:{key}".encode()).hexdigest()
