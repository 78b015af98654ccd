"""How a chunk of a skill becomes a row that search knows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from services.skills.domain.skills import Skill


@dataclass(frozen=True, slots=True)
class SkillRecord:
    """`revision` grows from publication to publication; `source_id` stays."""

    source_id: str
    revision: int
    title: str
    content: str
    metadata: Mapping[str, str | list[str]]


def records_of(skill: Skill, revision: int) -> Iterator[SkillRecord]:
    for chunk in skill.chunks:
        yield SkillRecord(
            source_id=f"{skill.id}/{chunk.id}",
            revision=revision,
            title=f"{skill.name}: {chunk.title}",
            content=chunk.content,
            metadata={
                "skill_id": skill.id,
                "chunk_id": chunk.id,
                "category": chunk.category,
                "intents": list(skill.relevance.intents),
                "genie_passes": list(skill.relevance.genie_passes),
                "pipeline_steps": list(skill.relevance.pipeline_steps),
            },
        )
