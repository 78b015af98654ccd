"""What holds of an assembled context, whatever its strategies bring and however little room there is."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from kbmesh.provenance import Tier
from services.search.domain.assembly import (
    DIRECT,
    Item,
    ResolvedSkills,
    Section,
    SkillPart,
    Strategy,
    of_passage,
    of_record,
    parse_assembly_query,
    scope_section,
)
from services.search.domain.context import ContextPassage
from services.search.domain.packing import FRAME, Entry, Outcome, Packed, pack
from services.search.domain.ranking import Score

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SCORE = Score(0.5, 0.5, 1.0, 1.0, 1, None, "")
IN_TEXT = (Outcome.INCLUDED, Outcome.SHORTENED)

words = st.sampled_from(["A sentence of some length that ends here. ", "endless " * 5, "\n", "# A\n"])
texts = st.builds(lambda text, times: text * times, words, st.integers(1, 40))
passages = st.builds(
    lambda number, content: ContextPassage(
        UUID(int=number), "skill_chunk", f"a/{number % 7}", "Title", content, Tier.CUSTOMER_FACT
    ),
    st.integers(0, 20),
    texts,
)
parts = st.builds(lambda number, content: SkillPart("a", str(number), "Title", content), st.integers(0, 6), texts)
lists = st.lists(passages, max_size=8)
resolved = st.builds(
    ResolvedSkills,
    st.text(max_size=900),
    st.lists(parts, max_size=3, unique_by=lambda part: part.chunk_id).map(tuple),
    st.lists(parts, max_size=3, unique_by=lambda part: part.chunk_id).map(tuple),
    st.lists(parts, max_size=1).map(tuple),
)
budgets = st.fixed_dictionaries(
    {"max_chars": st.integers(4_000, 12_000)},
    optional={f"max_{name}_chars": st.integers(0, 6_000) for name in ("overlay", "direct", "skills", "retrieval")},
)


def brought(
    direct: list[ContextPassage], first: list[ContextPassage], second: list[ContextPassage]
) -> list[tuple[Section, list[Item]]]:
    section, estate, skills = DIRECT[0].section, scope_section("estate"), scope_section("skills")
    return [
        (section, [of_record(section, passage, None, NOW) for passage in direct]),
        (estate, [of_passage(estate, passage, SCORE) for passage in first]),
        (skills, [of_passage(skills, passage, SCORE) for passage in second]),
    ]


@settings(max_examples=40, deadline=None)
@given(lists, lists, lists, resolved, budgets, st.sampled_from([None, "analyst"]))
def test_no_budget_is_exceeded_nothing_stands_twice_and_the_receipt_is_the_text(
    direct: list[ContextPassage],
    first: list[ContextPassage],
    second: list[ContextPassage],
    skills: ResolvedSkills,
    limits: dict[str, Any],
    persona: str | None,
) -> None:
    query = parse_assembly_query("q", "business", persona=persona, **limits)
    given_items = brought(direct, first, second)

    packed = pack(query, given_items, skills)

    assert packed == pack(query, given_items, skills)
    assert len(packed.text) + len(packed.overlay) <= query.budgets.total
    assert len(packed.overlay) <= query.budgets.overlay
    for strategy, budget in query.budgets.of.items():
        texts = [text for section, text in packed.sections if section.strategy is strategy]
        assert sum(len(text) + 2 for text in texts) <= budget
    # Everything is accounted for, once.
    expected = sum(len(items) for _, items in given_items)
    expected += len(skills.overlay_parts) + len(skills.sections) + len(skills.left_out)
    assert len(packed.entries) == expected
    assert sum(entry.characters or 0 for entry in packed.entries) + packed.framing == len(packed.text)
    assert all(
        bool(entry.characters) == (entry.outcome in IN_TEXT)
        for entry in packed.entries
        if entry.characters is not None
    )
    # No chunk twice, nor a chunk of a skill that is there as a whole.
    kept = [entry.item for entry in packed.entries if entry.outcome in IN_TEXT]
    chunks = [item.chunk_id for item in kept if item.chunk_id is not None]
    assert len(chunks) == len(set(chunks))
    whole = [item.source_id for item in kept if item.chunk_id is None]
    found = {item.source_id for item in kept if item.section.strategy is Strategy.RETRIEVAL}
    assert len(whole) == len(set(whole)) or skills.overlay_parts
    assert not found & set(whole)
    # The text is the frame and the sections, and nothing in it but headings begins as one.
    if packed.sections:
        assert packed.text.startswith(FRAME)
        assert packed.text.endswith("".join(f"\n\n{text}" for _, text in packed.sections))
        assert sum(line.startswith("#") for line in packed.text.splitlines()) == len(packed.sections)
    else:
        assert packed.text == ""


def passage(number: int, content: str = "Churn.", kind: str = "table_detail") -> ContextPassage:
    return ContextPassage(UUID(int=number), kind, str(number), "", content, Tier.CUSTOMER_FACT)


def outcomes(packed: Packed) -> list[tuple[str, str, Outcome]]:
    def told(entry: Entry) -> tuple[str, str, Outcome]:
        return entry.item.section.name, entry.item.source_id, entry.outcome

    return list(map(told, packed.entries))


def test_what_two_strategies_bring_stands_where_it_came_first() -> None:
    skills = ResolvedSkills("Do.", (SkillPart("sql", "rules"),), (SkillPart("sql", "joins", "Joins", "Join."),))
    same = [passage(1), ContextPassage(UUID(int=2), "skill_chunk", "sql/rules", "", "Do.", Tier.CUSTOMER_FACT)]

    packed = pack(parse_assembly_query("q", "business"), brought([passage(1)], same, [passage(3)]), skills)

    assert outcomes(packed) == [
        ("system_overlay", "sql/rules", Outcome.INCLUDED),
        ("business_context", "1", Outcome.INCLUDED),
        ("skill_guidance", "sql/joins", Outcome.INCLUDED),
        ("estate", "1", Outcome.DUPLICATE),
        ("estate", "sql/rules", Outcome.DUPLICATE),
        ("skills", "3", Outcome.INCLUDED),
    ]
    assert packed.overlay == "Do."
    assert packed.text == (
        f"{FRAME}\n\n## Business context\n\n[PLATFORM DATA] CustomerFact\n| Churn."
        "\n\n## Skills\n\n[PLATFORM SKILL] PlatformBestPractice: Joins\n| Join."
        "\n\n## Found for the question: skills\n\n[PLATFORM DATA] CustomerFact\n| Churn."
    )


def test_scopes_take_turns_for_the_room_and_one_passage_is_cut() -> None:
    sentences = "A sentence that ends here. " * 40
    query = parse_assembly_query("q", "business", max_retrieval_chars=3_000)
    first, second = (
        [passage(number, sentences) for number in (1, 2)],
        [passage(number, sentences) for number in (3, 4)],
    )

    packed = pack(query, brought([], first, second), ResolvedSkills())

    assert outcomes(packed) == [
        ("estate", "1", Outcome.INCLUDED),
        ("estate", "2", Outcome.SHORTENED),
        ("skills", "3", Outcome.INCLUDED),
        ("skills", "4", Outcome.OVER_BUDGET),
    ]


def test_an_overlay_that_is_longer_than_asked_for_is_left_out_whole() -> None:
    query = parse_assembly_query("q", "business", max_overlay_chars=3)

    packed = pack(query, [], ResolvedSkills("Do so.", (SkillPart("sql", "rules"),)))

    assert (packed.overlay, packed.text) == ("", "")
    assert outcomes(packed) == [("system_overlay", "sql/rules", Outcome.OVER_BUDGET)]
