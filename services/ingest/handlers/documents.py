from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar
from uuid import UUID, uuid4

from kbmesh.auth import Principal
from kbmesh.errors import Conflict, InvalidArgument, NotFound, PermissionDenied
from kbmesh.provenance import Category, Tier
from services.ingest.domain.filename import clean_filename
from services.ingest.domain.metadata import parse_metadata
from services.ingest.domain.models import Document, DocumentFilter, Removed, StoredUpload
from services.ingest.handlers.knowledge_bases import (
    editable_knowledge_base,
    get_knowledge_base,
    unknown_knowledge_base,
)
from services.ingest.handlers.objects import discard_objects, remove_objects
from services.ingest.handlers.upload_stream import UploadStream
from services.ingest.ports import Documents, KnowledgeBases, ObjectStore

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class UploadForm:
    """What the caller says about a file, as text off the wire; None: not said."""

    filename: str
    category: str | None = None
    source_priority: str | None = None
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class UploadLimits:
    max_bytes: int
    idle_timeout_s: float
    max_files: int = 100
    """Of one form."""


async def upload_document(
    knowledge_bases: KnowledgeBases,
    documents: Documents,
    store: ObjectStore,
    limits: UploadLimits,
    principal: Principal,
    kb_id: UUID,
    body: AsyncIterator[bytes],
    form: Callable[[], UploadForm],
    *,
    idempotency_key: str | None = None,
) -> tuple[Document, bool]:
    """Streams a file into the store and accepts it as a revision of the document of its name.

    Args:
        form: asked once the first bytes are here (for the file name) and again after the last.

    Returns:
        The document; False beside it when it holds these very bytes already.

    Raises:
        NotFound: no such knowledge base for the caller.
        PermissionDenied: the caller sees it and may not write in it, or its owner has reached the quota.
        InvalidArgument: the file is empty, or its name, category, source priority or metadata is not valid.
        Conflict: the idempotency key came with another upload, or the document was deleted in the meantime.
        UnsupportedType, TooLarge: as UploadStream; and whatever `body` raises.
    """
    await editable_knowledge_base(knowledge_bases, principal, kb_id)
    key = f"{kb_id}/{uuid4()}"
    stream = UploadStream(body, lambda: form().filename, limits.max_bytes)
    await store.put(key, stream.chunks())
    # Where the outcome of `register` is unknown (the database went away in the commit), the object stays:
    # a row may point to it.
    try:
        said = form()
        upload = StoredUpload(
            kb_id=kb_id,
            filename=clean_filename(said.filename),
            content_type=stream.content_type,
            category=_choice(Category, said.category, "category") or Category.OTHER,
            source_priority=_choice(Tier, said.source_priority, "source_priority"),
            metadata=parse_metadata(said.metadata),
            size_bytes=stream.size,
            content_sha256=stream.digest,
            storage_key=key,
            uploader=principal.sub,
            idempotency_key=idempotency_key,
        )
        registered = await documents.register(principal, upload)
        if registered is None:
            raise unknown_knowledge_base()
    except (Conflict, InvalidArgument, NotFound, PermissionDenied):
        await discard_objects(store, [key])
        raise
    document, changed = registered
    if document.storage_key != key:
        await discard_objects(store, [key])
    return document, changed


async def get_document(documents: Documents, principal: Principal, document_id: UUID) -> Document:
    """Raises NotFound, whether it does not exist or is not for the caller to see."""
    found = await documents.find(principal, document_id)
    if found is None:
        raise unknown_document()
    return found


async def list_documents(
    knowledge_bases: KnowledgeBases,
    documents: Documents,
    principal: Principal,
    kb_id: UUID,
    wanted: DocumentFilter,
    *,
    after: UUID | None,
    limit: int,
) -> Sequence[Document]:
    """Raises NotFound: no such knowledge base for the caller."""
    await get_knowledge_base(knowledge_bases, principal, kb_id)
    return await documents.visible(principal, kb_id, wanted, after=after, limit=limit)


async def editable_document(
    knowledge_bases: KnowledgeBases, documents: Documents, principal: Principal, document_id: UUID
) -> Document:
    """Raises NotFound, and PermissionDenied for who sees it and may not write in its knowledge base."""
    found = await get_document(documents, principal, document_id)
    await editable_knowledge_base(knowledge_bases, principal, found.kb_id)
    return found


async def delete_document(
    knowledge_bases: KnowledgeBases,
    documents: Documents,
    store: ObjectStore,
    principal: Principal,
    document_id: UUID,
    seen: Collection[str] | None = None,
) -> Removed:
    """Raises as editable_document; PreconditionFailed if versions are `seen` and it has another by now."""
    await editable_document(knowledge_bases, documents, principal, document_id)
    removed = await documents.delete(principal, document_id, seen)
    if removed is None:
        raise unknown_document()
    return await remove_objects(store, removed)


def unknown_document() -> NotFound:
    return NotFound("no such document", code="document_not_found")


def _choice(choices: type[E], said: str | None, field: str) -> E | None:
    if not said:
        return None
    try:
        return choices(said)
    except ValueError:
        known = ", ".join(choices)
        raise InvalidArgument(f"{field} is one of: {known}", code=f"unknown_{field}") from None
