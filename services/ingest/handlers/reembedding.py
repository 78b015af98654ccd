from collections.abc import Collection
from typing import Final
from uuid import UUID

from kbmesh.auth import Principal
from services.ingest.domain.models import Document, Reembedded
from services.ingest.handlers.documents import editable_document, unknown_document
from services.ingest.handlers.knowledge_bases import editable_knowledge_base
from services.ingest.ports import Documents, KnowledgeBases

BATCH: Final = 10
"""Documents whose chunks one transaction copies."""


async def reembed_document(
    knowledge_bases: KnowledgeBases,
    documents: Documents,
    principal: Principal,
    document_id: UUID,
    seen: Collection[str] | None = None,
) -> Document:
    """Has the vectors of a document computed anew from its stored chunks.

    Raises:
        NotFound, PermissionDenied: as editable_document.
        PreconditionFailed: versions are `seen`, and it has another by now.
        Conflict: its newest revision has no stored chunks.
    """
    await editable_document(knowledge_bases, documents, principal, document_id)
    renewed = await documents.reembed(principal, document_id, seen)
    if renewed is None:
        raise unknown_document()
    return renewed


async def reembed_knowledge_base(
    knowledge_bases: KnowledgeBases, documents: Documents, principal: Principal, kb_id: UUID
) -> Reembedded:
    """The same for every document that has chunks. Cut short, it may be repeated.

    Raises:
        NotFound, PermissionDenied: as editable_knowledge_base.
    """
    await editable_knowledge_base(knowledge_bases, principal, kb_id)
    renewed = skipped = 0
    last: UUID | None = None
    while batch := await documents.reembed_batch(principal, kb_id, after=last, limit=BATCH):
        count = sum(has_chunks for _, has_chunks in batch)
        renewed += count
        skipped += len(batch) - count
        last, _ = batch[-1]
    return Reembedded(renewed, skipped)
