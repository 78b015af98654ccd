from collections.abc import Sequence
from typing import Protocol

from services.skills.domain.records import SkillRecord
from services.skills.domain.skills import ListedChunk, Skill, Target


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
