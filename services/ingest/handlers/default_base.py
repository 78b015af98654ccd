"""The personal knowledge base of callers who name none."""

from collections.abc import Sequence
from uuid import UUID

from kbmesh.auth import Principal
from services.ingest.domain.models import Document, DocumentFilter, KnowledgeBase, Left, Removed
from services.ingest.handlers.objects import remove_objects
from services.ingest.ports import Documents, KnowledgeBases, ObjectStore

DEFAULT_NAME = "My documents"


async def default_knowledge_base(knowledge_bases: KnowledgeBases, principal: Principal) -> KnowledgeBase:
    """The caller's, made now if there is none; parallel calls get the same."""
    return await knowledge_bases.ensure_default(principal, DEFAULT_NAME)


async def list_default_documents(
    knowledge_bases: KnowledgeBases,
    documents: Documents,
    principal: Principal,
    *,
    after: UUID | None,
    limit: int,
) -> Sequence[Document]:
    """None before the first upload: reading makes no knowledge base."""
    base = await knowledge_bases.find_default(principal)
    if base is None:
        return []
    return await documents.visible(principal, base.id, DocumentFilter(), after=after, limit=limit)


async def clear_default_documents(
    knowledge_bases: KnowledgeBases, documents: Documents, store: ObjectStore, principal: Principal
) -> Removed:
    """Deletes every document of it; the knowledge base stays."""
    base = await knowledge_bases.find_default(principal)
    if base is None:
        return Removed(0, 0, 0, (), left=Left())
    removed = await documents.delete_all(principal, base.id)
    return await remove_objects(store, removed)
