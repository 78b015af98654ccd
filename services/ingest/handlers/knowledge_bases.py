from collections.abc import Sequence
from uuid import UUID

from kbmesh.auth import Principal
from kbmesh.errors import NotFound, PermissionDenied
from services.ingest.domain.access import may_write
from services.ingest.domain.models import Contents, KnowledgeBase, OwnerType, Removed
from services.ingest.handlers.objects import remove_objects
from services.ingest.ports import KnowledgeBases, ObjectStore


async def create_knowledge_base(
    knowledge_bases: KnowledgeBases,
    principal: Principal,
    *,
    name: str,
    description: str,
    owner_type: OwnerType,
    owner_id: UUID | None,
) -> KnowledgeBase:
    """A knowledge base of the caller's own, or of a team that the caller is a member of.

    Raises:
        PermissionDenied: owned by somebody else, or by a team that the caller does not edit for.
    """
    owner_id = owner_for_writing(principal, owner_type, owner_id)
    return await knowledge_bases.create(owner_type, owner_id, name, description)


async def get_knowledge_base(knowledge_bases: KnowledgeBases, principal: Principal, kb_id: UUID) -> KnowledgeBase:
    """Raises NotFound, whether it does not exist or is not for the caller to see."""
    found = await knowledge_bases.find(principal, kb_id)
    if found is None:
        raise unknown_knowledge_base()
    return found


async def get_contents(
    knowledge_bases: KnowledgeBases, principal: Principal, kb_id: UUID
) -> tuple[KnowledgeBase, Contents]:
    """A knowledge base and what it holds. Raises NotFound."""
    found = await get_knowledge_base(knowledge_bases, principal, kb_id)
    return found, await knowledge_bases.contents(principal, kb_id)


async def editable_knowledge_base(
    knowledge_bases: KnowledgeBases, principal: Principal, kb_id: UUID
) -> KnowledgeBase:
    """A knowledge base that the caller sees and may write in. Its owner never changes, so the answer holds.

    Raises:
        NotFound: as get_knowledge_base.
        PermissionDenied: the caller sees it and does not edit for its team.
    """
    found = await get_knowledge_base(knowledge_bases, principal, kb_id)
    if not may_write(principal, found.owner_type, found.owner_id):
        raise _not_an_editor()
    return found


async def rename_knowledge_base(
    knowledge_bases: KnowledgeBases,
    principal: Principal,
    kb_id: UUID,
    *,
    name: str | None,
    description: str | None,
) -> KnowledgeBase:
    """None leaves a field as it is. Raises as editable_knowledge_base."""
    await editable_knowledge_base(knowledge_bases, principal, kb_id)
    renamed = await knowledge_bases.rename(principal, kb_id, name, description)
    if renamed is None:
        raise unknown_knowledge_base()
    return renamed


async def list_knowledge_bases(
    knowledge_bases: KnowledgeBases, principal: Principal, *, after: UUID | None, limit: int
) -> Sequence[KnowledgeBase]:
    return await knowledge_bases.visible(principal, after=after, limit=limit)


async def delete_knowledge_base(
    knowledge_bases: KnowledgeBases, store: ObjectStore, principal: Principal, kb_id: UUID
) -> Removed:
    """Raises as editable_knowledge_base."""
    await editable_knowledge_base(knowledge_bases, principal, kb_id)
    removed = await knowledge_bases.delete(principal, kb_id)
    if removed is None:
        raise unknown_knowledge_base()
    return await remove_objects(store, removed)


def owner_for_writing(principal: Principal, owner_type: OwnerType, owner_id: UUID | None) -> UUID:
    """The owner that the caller named, if it may write for it; by default the caller.

    Raises:
        PermissionDenied: somebody else, or a team that the caller does not edit for.
    """
    if owner_type is OwnerType.USER:
        owner_id = owner_id or principal.sub
        allowed = owner_id == principal.sub
    else:
        allowed = owner_id in principal.teams
    if not allowed or owner_id is None:
        raise PermissionDenied("the owner is you or a team of yours", code="not_your_owner")
    if not may_write(principal, owner_type, owner_id):
        raise _not_an_editor()
    return owner_id


def _not_an_editor() -> PermissionDenied:
    return PermissionDenied("writing for this team needs the role editor or admin", code="not_an_editor")


def unknown_knowledge_base() -> NotFound:
    return NotFound("no such knowledge base", code="knowledge_base_not_found")
