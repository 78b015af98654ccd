"""Who may change what it sees. What is seen at all is decided in SQL (kbmesh/postgres/access.py)."""

from typing import Final
from uuid import UUID

from kbmesh.auth import Principal
from services.ingest.domain.models import OwnerType

WRITING_ROLES: Final = ("editor", "admin")
PRODUCING_ROLES: Final = frozenset({"records", "admin"})


def may_write(principal: Principal, owner_type: OwnerType, owner_id: UUID) -> bool:
    """Whether `principal` may create, rename, upload and delete in the knowledge bases of an owner.

    One's own: yes. A team's: a member with the role `editor` or `admin`, for all its teams or, as
    `team:<uuid>:editor`, for this one.
    """
    if owner_type is OwnerType.USER:
        return owner_id == principal.sub
    return owner_id in principal.teams and any(
        role in principal.roles or f"team:{owner_id}:{role}" in principal.roles for role in WRITING_ROLES
    )


def may_publish(principal: Principal) -> bool:
    """Whether `principal` may write records, which belong to nobody and which everybody finds."""
    return not PRODUCING_ROLES.isdisjoint(principal.roles)
