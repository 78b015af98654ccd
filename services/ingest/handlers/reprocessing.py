from collections.abc import Collection
from typing import Final
from uuid import UUID

from kbmesh.auth import Principal
from services.ingest.domain.models import Document
from services.ingest.handlers.documents import editable_document, unknown_document
from services.ingest.handlers.knowledge_bases import editable_knowledge_base
from services.ingest.ports import Documents, KnowledgeBases

BATCH: Final = 100
"""Documents that one transaction locks."""


async def reprocess_document(
    knowledge_bases: KnowledgeBases,
    documents: Documents,
    principal: Principal,
    document_id: UUID,
    seen: Collection[str] | None = None,
) -> Document:
    """Extracts a document again, in any state.

    Raises:
        NotFound, PermissionDenied: as editable_document.
        PreconditionFailed: versions are `seen`, and it has another by now.
    """
    await editable_document(knowledge_bases, documents, principal, document_id)
    renewed = await documents.reprocess(principal, document_id, seen)
    if renewed is None:
        raise unknown_document()
    return renewed


async def reprocess_knowledge_base(
    knowledge_bases: KnowledgeBases, documents: Documents, principal: Principal, kb_id: UUID
) -> int:
    """Extracts every document again; how many those are. Cut short, it may be repeated.

    Raises:
        NotFound, PermissionDenied: as editable_knowledge_base.
    """
    await editable_knowledge_base(knowledge_bases, principal, kb_id)
    count = 0
    last: UUID | None = None
    while batch := await documents.reprocess_batch(principal, kb_id, after=last, limit=BATCH):
        count += len(batch)
        last = batch[-1]
    return count
