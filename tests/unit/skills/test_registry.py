from dataclasses import replace
from typing import Any, cast

import pytest

from kbmesh.errors import Conflict, InvalidArgument, NotFound
from services.skills.domain.registry import MAX_CONTENT_BYTES, SkillRegistry
from services.skills.domain.skills import (
    ChunkCategory,
    GeniePass,
    Intent,
    PipelineStep,
    Relevance,
    Skill,
    SkillChunk,
)

CHUNK = SkillChunk("half-open", "Half-open ranges", "Use >= and <.", ChunkCategory.RULES)
SKILL = Skill("sql-dates", "SQL dates", "Dates in SQL.", Relevance(intents=(Intent.TECHNICAL,)), (CHUNK,))


def with_chunk(**changes: Any) -> Skill:
    return replace(SKILL, chunks=(replace(CHUNK, **changes),))


def test_a_registered_skill_is_found_by_its_id() -> None:
    registry = SkillRegistry()
    registry.register(SKILL)

    assert registry.get("sql-dates") is SKILL


def test_skills_are_listed_in_order_of_id() -> None:
    registry = SkillRegistry()
    for skill_id in ("b", "c", "a"):
        registry.register(replace(SKILL, id=skill_id))

    assert [skill.id for skill in registry.all()] == ["a", "b", "c"]


def test_a_second_skill_of_the_same_id_is_refused_and_the_first_stays() -> None:
    registry = SkillRegistry()
    registry.register(SKILL)

    with pytest.raises(Conflict) as refused:
        registry.register(replace(SKILL, name="Another"))

    assert refused.value.code == "duplicate_skill"
    assert registry.get("sql-dates") is SKILL


def test_an_unknown_id_is_not_found() -> None:
    with pytest.raises(NotFound) as missing:
        SkillRegistry().get("sql-dates")

    assert missing.value.code == "skill_not_found"


@pytest.mark.parametrize(
    "relevance",
    [
        Relevance(intents=(cast(Intent, "astrology"),)),
        Relevance(genie_passes=(cast(GeniePass, "technical"),)),
        Relevance(pipeline_steps=(PipelineStep.SCORING, cast(PipelineStep, "sqlGeneration"))),
    ],
)
def test_an_unknown_target_is_refused(relevance: Relevance) -> None:
    registry = SkillRegistry()

    with pytest.raises(InvalidArgument) as refused:
        registry.register(replace(SKILL, relevance=relevance))

    assert refused.value.code == "unknown_target"
    assert "known are" in refused.value.detail
    assert registry.all() == []


@pytest.mark.parametrize(
    ("skill", "code"),
    [
        (replace(SKILL, id="SQL dates"), "bad_skill_id"),
        (replace(SKILL, id="a" * 65), "bad_skill_id"),
        (replace(SKILL, id="sql-dates\n"), "bad_skill_id"),
        (replace(SKILL, name=" "), "bad_skill_text"),
        (replace(SKILL, relevance=Relevance()), "no_target"),
        (replace(SKILL, chunks=()), "empty_skill"),
        (replace(SKILL, chunks=(CHUNK, CHUNK)), "duplicate_chunk"),
        (with_chunk(id="half/open"), "bad_skill_id"),
        (with_chunk(title="t" * 201), "bad_skill_text"),
        (with_chunk(content=" \n"), "empty_chunk"),
        (with_chunk(content="ä" * (MAX_CONTENT_BYTES // 2 + 1)), "chunk_too_large"),
        (with_chunk(category=cast(ChunkCategory, "jokes")), "unknown_category"),
        (with_chunk(max_char_budget=0), "bad_char_budget"),
    ],
)
def test_a_malformed_skill_is_refused_with_a_code_that_says_why(skill: Skill, code: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        SkillRegistry().register(skill)

    assert refused.value.code == code
