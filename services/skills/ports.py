from collections.abc import Sequence
from typing import Protocol

from services.skills.domain.records import SkillRecord
from services.skills.domain.skills import ListedChunk, Skill, Target
from services.skills.domain.vectors import Embedded, Side


class SkillCatalog(Protocol):
    """The skills that this service knows."""

    def get(self, skill_id: str) -> Skill:
        """Raises NotFound."""
        ...

    def all(self) -> list[Skill]:
        """In order of id."""
        ...

    def chunks_for(self, target: Target) -> list[ListedChunk]:
        """Of the skills that name it, in order of the skill's id, then as each skill has them."""
        ...


class RecordOutbox(Protocol):
    """Where records are handed over to be embedded and searched."""

    async def publish(self, records: Sequence[SkillRecord]) -> None:
        """All of them or none.

        Raises:
            Unavailable: the database does not answer.
        """
        ...


class Embedder(Protocol):
    """Where texts get their vectors."""

    async def embed(self, texts: Sequence[str], side: Side, *, space_id: str = "", timeout_s: float) -> Embedded:
        """The vectors of 1 to 32 texts, none of them blank, in the space of that id; empty: in the active one.

        Raises:
            Unavailable: the embedding service is down, busy, too slow, or refuses.
        """
        ...
