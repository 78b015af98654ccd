"""What a request for context may say, and what of the candidates clears its floor."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from kbmesh.errors import InvalidArgument
from kbmesh.provenance import KINDS, SCOPES, Tier
from services.search.domain.context import ContextQuery, order, parse_context_query
from services.search.domain.ranking import Candidate

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAST = datetime(2025, 1, 1, tzinfo=UTC)
FIRST, SECOND, THIRD = (UUID(int=number) for number in (1, 2, 3))


def query(*, min_score: float = 0.4, by_provenance: bool = True) -> ContextQuery:
    return ContextQuery("q", frozenset(KINDS), {}, min_score=min_score, by_provenance=by_provenance)


def candidate(chunk_id: UUID, similarity: float, tier: Tier = Tier.CUSTOMER_FACT) -> Candidate:
    return Candidate(chunk_id, similarity, tier)


def ordered(nearest: list[Candidate], keyword: list[Candidate], asked: ContextQuery) -> list[UUID]:
    return [one.chunk_id for one in order(nearest, keyword, asked, now=NOW)]


def test_scopes_and_kinds_are_asked_for_together() -> None:
    asked = parse_context_query("q", scopes=["insights", "documents"], kinds=["skill_version"])

    assert asked.kinds == SCOPES["insights"] | {"document_chunk", "skill_version"}


def test_who_names_none_asks_for_every_kind_with_the_defaults() -> None:
    assert parse_context_query(" q\x00 ") == ContextQuery("q", frozenset(KINDS), {}, 10, 0.4, True, 8_000)


def test_run_and_scan_are_values_of_the_metadata() -> None:
    asked = parse_context_query("q", metadata={"schema": "sales", "rows": 3.0}, run_id="r1", scan_id="")

    assert asked.attributes == {"schema": "sales", "rows": 3.0, "run_id": "r1", "scan_id": ""}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"text": " "}, "empty_query"),
        ({"top_k": 0}, "limit_out_of_range"),
        ({"top_k": 51}, "limit_out_of_range"),
        ({"scopes": ["gossip"]}, "unknown_scope"),
        ({"scopes": ["Documents"]}, "unknown_scope"),
        ({"kinds": ["gossip"]}, "unknown_kind"),
        ({"kinds": ["\x00"]}, "unknown_kind"),
        ({"kinds": ["use_case"] * 51}, "too_many_kinds"),
        ({"min_score": -0.1}, "min_score_out_of_range"),
        ({"min_score": float("nan")}, "min_score_out_of_range"),
        ({"max_chars": 1_999}, "max_chars_out_of_range"),
        ({"max_chars": 100_001}, "max_chars_out_of_range"),
        ({"metadata": {"a": None}}, "invalid_metadata_filter"),
        ({"metadata": {"a": {"b": 1}}}, "invalid_metadata_filter"),
        ({"metadata": {"a": float("inf")}}, "invalid_metadata_filter"),
        ({"metadata": {"a": "\x00"}}, "invalid_metadata_filter"),
        ({"metadata": {"\x00": "a"}}, "invalid_metadata_filter"),
        ({"metadata": {"a": "a" * 1_001}}, "invalid_metadata_filter"),
        ({"metadata": dict.fromkeys(map(str, range(17)), 1.0)}, "invalid_metadata_filter"),
        ({"metadata": {"run_id": "a"}, "run_id": "b"}, "invalid_metadata_filter"),
    ],
)
def test_what_cannot_be_is_refused_with_a_code(fields: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_context_query(**{"text": "q"} | fields)

    assert refused.value.code == code


def test_the_floor_is_one_of_cosine_similarity() -> None:
    nearest = [candidate(FIRST, 0.8), candidate(SECOND, 0.4), candidate(THIRD, 0.39)]

    assert ordered(nearest, [], query()) == [FIRST, SECOND]


def test_what_keywords_alone_find_is_judged_by_its_share_of_the_best_score() -> None:
    keyword = [candidate(FIRST, 9.0), candidate(SECOND, 4.5), candidate(THIRD, 3.0)]

    assert ordered([candidate(FIRST, 0.1)], keyword, query()) == [FIRST, SECOND]
    assert ordered([], keyword, query(min_score=1)) == [FIRST]
    assert ordered([], keyword, query(min_score=0)) == [FIRST, SECOND, THIRD]


def test_sources_count_by_their_provenance_unless_relevance_alone_is_asked_for() -> None:
    nearest = [
        Candidate(FIRST, 0.9, Tier.ADVISORY_GUIDANCE),
        Candidate(SECOND, 0.8, Tier.CUSTOMER_FACT, PAST),
        Candidate(THIRD, 0.7, Tier.CUSTOMER_FACT),
    ]

    assert ordered(nearest, [], query()) == [SECOND, THIRD, FIRST]
    alone = order(nearest, [], query(by_provenance=False), now=NOW)
    assert [one.chunk_id for one in alone] == [FIRST, SECOND, THIRD]
    assert alone[0].score.value == 0.25
    assert alone[0].score.reason == "relevance 0.25 alone"
