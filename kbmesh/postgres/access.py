"""The access predicate, the same in every statement of every service."""

from typing import Final
from uuid import UUID

from kbmesh.auth import Principal

OWN_OR_TEAMS: Final = """((owner_type = 'user' AND owner_id = $1)
    OR (owner_type = 'team' AND owner_id = ANY($2::uuid[])))"""
"""Holds for the rows of `knowledge_bases` that the principal in $1 (user) and $2 (teams) may see."""


def identity(principal: Principal) -> tuple[UUID, list[UUID]]:
    """The arguments $1 and $2. Roles do not widen what is seen."""
    return principal.sub, sorted(principal.teams)
