"""The curated skills. Content modules register theirs when they are imported."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Final

from kbmesh.errors import Conflict, InvalidArgument, NotFound
from services.skills.domain.skills import (
    ChunkCategory,
    ChunkId,
    GeniePass,
    Intent,
    ListedChunk,
    PipelineStep,
    Relevance,
    Skill,
    SkillChunk,
    Target,
)

# As the names of agent skills: https://agentskills.io/specification
MAX_ID_LENGTH: Final = 64
_ID: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

# Limits of an event on the records topic, which carries "<skill name>: <chunk title>" and the content.
MAX_NAME_LENGTH: Final = 200
MAX_CONTENT_BYTES: Final = 256 * 1024


class SkillRegistry:
    """Skills by id. What is in it has been checked."""

    def __init__(self) -> None:
        self._skills: dict[str, Skill] = {}

    def register(self, skill: Skill) -> None:
        """Adds a skill.

        Raises:
            Conflict: there is a skill of this id.
            InvalidArgument: a malformed id, an unknown target or category, a chunk without content, ...
        """
        check_skill(skill)
        if skill.id in self._skills:
            raise Conflict(f"skill {skill.id} is registered already", code="duplicate_skill")
        self._skills[skill.id] = skill

    def get(self, skill_id: str) -> Skill:
        """The skill of this id.

        Raises:
            NotFound: there is none.
        """
        try:
            return self._skills[skill_id]
        except KeyError:
            raise NotFound(f"there is no skill {skill_id[:MAX_ID_LENGTH]!r}", code="skill_not_found") from None

    def all(self) -> list[Skill]:
        """Every skill, in order of id."""
        return [self._skills[skill_id] for skill_id in sorted(self._skills)]

    def skills_for(self, target: Target) -> list[Skill]:
        """Every skill that names `target`, in order of id."""
        return [skill for skill in self.all() if skill.relevance.names(target)]

    def chunks_for(self, target: Target) -> list[ListedChunk]:
        """The chunks of those skills, each skill's in its own order."""
        return [listed for skill in self.skills_for(target) for listed in chunks_of(skill)]

    def chunks(self) -> list[ListedChunk]:
        """As `chunks_for`, of every skill."""
        return [listed for skill in self.all() for listed in chunks_of(skill)]


CURATED: Final = SkillRegistry()
register_skill: Final = CURATED.register
get_skill: Final = CURATED.get
get_all_skills: Final = CURATED.all
get_skills_for_intent: Final[Callable[[Intent], list[Skill]]] = CURATED.skills_for
get_skills_for_genie_pass: Final[Callable[[GeniePass], list[Skill]]] = CURATED.skills_for
get_skills_for_pipeline_step: Final[Callable[[PipelineStep], list[Skill]]] = CURATED.skills_for
get_chunks_for_intent: Final[Callable[[Intent], list[ListedChunk]]] = CURATED.chunks_for
get_chunks_for_genie_pass: Final[Callable[[GeniePass], list[ListedChunk]]] = CURATED.chunks_for
get_chunks_for_pipeline_step: Final[Callable[[PipelineStep], list[ListedChunk]]] = CURATED.chunks_for


def chunks_of(skill: Skill) -> list[ListedChunk]:
    return [ListedChunk(ChunkId(skill.id, chunk.id), chunk) for chunk in skill.chunks]


def check_skill(skill: Skill) -> None:
    """Refuses what could not be found or used later.

    Raises:
        InvalidArgument: its code says what is wrong, its detail where.
    """
    _check_id(skill.id, f"skill {skill.id!r}")
    _check_text(skill.name, f"name of skill {skill.id}", MAX_NAME_LENGTH)
    _check_targets(skill.id, skill.relevance)
    if not skill.chunks:
        raise InvalidArgument(f"skill {skill.id} has no chunks", code="empty_skill")
    for chunk in skill.chunks:
        _check_chunk(chunk, f"chunk {skill.id}/{chunk.id}")
    chunk_id, count = Counter(chunk.id for chunk in skill.chunks).most_common(1)[0]
    if count > 1:
        raise InvalidArgument(f"skill {skill.id} has {count} chunks {chunk_id!r}", code="duplicate_chunk")


def _check_id(value: str, where: str) -> None:
    if len(value) > MAX_ID_LENGTH or not _ID.fullmatch(value):
        raise InvalidArgument(
            f"{where}: an id is lower-case words and digits joined by hyphens, at most {MAX_ID_LENGTH} characters",
            code="bad_skill_id",
        )


def _check_text(value: str, where: str, limit: int) -> None:
    if not value.strip() or len(value) > limit:
        raise InvalidArgument(f"{where} must have 1 to {limit} characters", code="bad_skill_text")


def _check_targets(skill_id: str, relevance: Relevance) -> None:
    targets = (
        (Intent, relevance.intents),
        (GeniePass, relevance.genie_passes),
        (PipelineStep, relevance.pipeline_steps),
    )
    if not any(named for _, named in targets):
        raise InvalidArgument(f"skill {skill_id} names no target", code="no_target")
    for known, named in targets:
        for target in named:
            if target not in list(known):
                raise InvalidArgument(
                    f"skill {skill_id}: {target!r} is no {known.__name__}; known are {', '.join(known)}",
                    code="unknown_target",
                )


def _check_chunk(chunk: SkillChunk, where: str) -> None:
    _check_id(chunk.id, where)
    _check_text(chunk.title, f"title of {where}", MAX_NAME_LENGTH)
    if not chunk.content.strip():
        raise InvalidArgument(f"{where} has no content", code="empty_chunk")
    if len(chunk.content.encode()) > MAX_CONTENT_BYTES:
        raise InvalidArgument(f"{where} is over {MAX_CONTENT_BYTES} bytes", code="chunk_too_large")
    if chunk.category not in list(ChunkCategory):
        raise InvalidArgument(f"{where}: unknown category {chunk.category!r}", code="unknown_category")
    if chunk.max_char_budget is not None and chunk.max_char_budget < 1:
        raise InvalidArgument(f"{where}: a budget is at least 1 character", code="bad_char_budget")
