from uuid import UUID

from kbmesh.auth import Principal

VISIBLE = """((kb.owner_type = 'user' AND kb.owner_id = $1)
    OR (kb.owner_type = 'team' AND kb.owner_id = ANY($2::uuid[])))"""
"""Which rows of `knowledge_bases kb` the principal in $1 (user) and $2 (teams) may see."""


def identity(principal: Principal) -> tuple[UUID, list[UUID]]:
    """The arguments $1 and $2 of VISIBLE. Roles do not widen what is seen."""
    return principal.sub, sorted(principal.teams)
