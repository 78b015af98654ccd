import base64
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kbmesh.errors import InvalidArgument
from services.skills import handlers
from services.skills.domain.records import SkillRecord
from services.skills.domain.registry import SkillRegistry
from services.skills.domain.skills import ChunkCategory, Intent, PipelineStep, Relevance, Skill, SkillChunk

SKILL = Skill(
    "sql-dates",
    "SQL dates",
    "Dates in SQL.",
    Relevance(intents=(Intent.TECHNICAL, Intent.DASHBOARD), pipeline_steps=(PipelineStep.SQL_GENERATION,)),
    (
        SkillChunk("half-open", "Half-open ranges", "Use >= and <.", ChunkCategory.RULES),
        SkillChunk("between", "BETWEEN on timestamps", "It loses a day.", ChunkCategory.ANTI_PATTERNS),
    ),
)


class ListOutbox:
    def __init__(self) -> None:
        self.records: list[SkillRecord] = []

    async def publish(self, records: Sequence[SkillRecord]) -> None:
        self.records.extend(records)


def catalog_of(*ids: str) -> SkillRegistry:
    registry = SkillRegistry()
    for skill_id in ids:
        registry.register(replace(SKILL, id=skill_id))
    return registry


def token_of(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def test_pages_give_every_skill_once_and_in_order() -> None:
    catalog = catalog_of("e", "b", "d", "a", "c")
    seen: list[str] = []
    sizes: list[int] = []
    token = ""
    while not sizes or token:
        page = handlers.list_skills(2, token, catalog=catalog)
        seen += [skill.id for skill in page.skills]
        sizes.append(len(page.skills))
        token = page.next_token

    assert (seen, sizes) == (["a", "b", "c", "d", "e"], [2, 2, 1])


def test_a_last_page_that_is_full_has_no_token() -> None:
    assert handlers.list_skills(2, "", catalog=catalog_of("a", "b")).next_token == ""


def test_a_skill_that_comes_between_two_pages_shifts_nothing() -> None:
    before = handlers.list_skills(1, "", catalog=catalog_of("b", "c"))

    after = handlers.list_skills(1, before.next_token, catalog=catalog_of("a", "b", "c"))

    assert [skill.id for skill in after.skills] == ["c"]


def test_size_zero_means_fifty() -> None:
    catalog = catalog_of(*(f"s{number:03}" for number in range(51)))

    assert len(handlers.list_skills(0, "", catalog=catalog).skills) == 50


@pytest.mark.parametrize("size", [-1, 101])
def test_a_page_size_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(InvalidArgument) as refused:
        handlers.list_skills(size, "", catalog=catalog_of("a"))

    assert refused.value.code == "bad_page_size"


@pytest.mark.parametrize(
    "token",
    ["x", "!!!!", "ä", token_of("a"), token_of("before:a"), token_of("after:a") + "=", token_of("after:a") + "\n"],
)
def test_a_token_from_elsewhere_is_refused(token: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        handlers.list_skills(1, token, catalog=catalog_of("a", "b"))

    assert refused.value.code == "bad_page_token"


async def test_publishing_hands_over_one_record_for_each_chunk() -> None:
    outbox = ListOutbox()

    published = await handlers.publish_skills(catalog=catalog_of("sql-dates"), outbox=outbox, revision=17)

    assert published == 2
    assert [record.source_id for record in outbox.records] == ["sql-dates/half-open", "sql-dates/between"]
    assert outbox.records[0] == SkillRecord(
        source_id="sql-dates/half-open",
        revision=17,
        title="SQL dates: Half-open ranges",
        content="Use >= and <.",
        metadata={
            "skill_id": "sql-dates",
            "chunk_id": "half-open",
            "category": "rules",
            "intents": ["technical", "dashboard"],
            "genie_passes": [],
            "pipeline_steps": ["sql-generation"],
        },
    )
