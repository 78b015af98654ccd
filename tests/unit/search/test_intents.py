import pytest

from kbmesh.errors import InvalidArgument
from kbmesh.provenance import SCOPES
from services.search.domain.assembly import (
    DEFAULT_TOTAL_CHARS,
    DIRECT,
    ESTATE_KINDS,
    Strategy,
    parse_assembly_query,
)
from services.search.domain.intents import LOWEST_FLOOR, PLANS, Look


def test_every_intent_looks_in_scopes_that_are_there_each_once() -> None:
    for plan in PLANS.values():
        scopes = [look.scope for look in plan]
        assert set(scopes) <= SCOPES.keys()
        assert len(scopes) == len(set(scopes))
    assert [(look.scope, look.top_k, look.min_score) for look in PLANS["technical"]] == [
        ("estate", 15, 0.40),
        ("insights", 8, 0.40),
        ("skills", 6, 0.40),
    ]


def test_floors_are_relaxed_by_a_tenth_and_no_lower_than_a_quarter() -> None:
    assert [Look("estate", 5, floor).relaxed().min_score for floor in (0.40, 0.35, 0.30)] == [0.30, 0.25, 0.25]
    assert all(look.relaxed().min_score >= LOWEST_FLOOR for plan in PLANS.values() for look in plan)


def test_what_is_looked_up_directly_are_records() -> None:
    assert "document_chunk" not in ESTATE_KINDS.union(*(direct.kinds for direct in DIRECT))


def test_budgets_are_shares_of_the_whole_unless_they_are_given() -> None:
    budgets = parse_assembly_query("q", "business").budgets
    assert (budgets.total, budgets.overlay) == (DEFAULT_TOTAL_CHARS, 3_000)
    assert budgets.of == {Strategy.DIRECT: 6_000, Strategy.SKILLS: 3_000, Strategy.RETRIEVAL: 24_000}

    given = parse_assembly_query("q", "business", max_chars=8_000, max_direct_chars=0).budgets
    assert (given.overlay, given.of[Strategy.DIRECT], given.of[Strategy.SKILLS]) == (1_000, 0, 1_000)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"text": " "}, "empty_query"),
        ({"intent": "gossip"}, "unknown_intent"),
        ({"intent": ""}, "unknown_intent"),
        ({"persona": "a" * 101}, "invalid_persona"),
        ({"persona": "a\n## Skills"}, "invalid_persona"),
        ({"channel_id": "\x00"}, "invalid_channel_id"),
        ({"max_chars": 3_999}, "budget_out_of_range"),
        ({"max_chars": 2**31 - 1}, "budget_out_of_range"),
        ({"max_skills_chars": -1}, "budget_out_of_range"),
    ],
)
def test_what_cannot_be_assembled_is_refused(fields: dict[str, object], code: str) -> None:
    request: dict[str, object] = {"text": "q", "intent": "business"} | fields

    with pytest.raises(InvalidArgument) as refusal:
        parse_assembly_query(**request)  # type: ignore[arg-type]

    assert refusal.value.code == code
