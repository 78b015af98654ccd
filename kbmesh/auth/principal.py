from dataclasses import dataclass
from typing import Final
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller. Sees the knowledge bases that `sub` owns and those of `teams`; roles never widen that: they
    say who may write for a team, and who operates."""

    sub: UUID
    teams: frozenset[UUID] = frozenset()
    roles: frozenset[str] = frozenset()


LOCAL_PRINCIPAL: Final = Principal(UUID("00000000-0000-4000-8000-000000000001"), roles=frozenset({"admin"}))
"""Every caller when authentication is off, which only a server bound to loopback may be."""
