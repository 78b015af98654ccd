from uuid import UUID, uuid4

import pytest

from kbmesh.errors import InvalidArgument
from services.search.domain.query import Query, parse_query

KB_ID = UUID("2653e4be-21a6-47fc-b7d7-7266f95e949b")


def test_a_question_is_trimmed_of_controls_and_has_defaults() -> None:
    assert parse_query(" \x00\x07what\x00is\nchurn?\x1f\t") == Query("what is\nchurn?", None, 5)


def test_knowledge_bases_are_read_once_each_in_any_case() -> None:
    assert parse_query("q", [str(KB_ID), str(KB_ID).upper()], 50).kb_ids == frozenset({KB_ID})


@pytest.mark.parametrize("text", ["", "   ", "\x00\x01\x1f\x7f\x85", "\n\t\u2003"])
def test_an_empty_question_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="empty_query"):
        parse_query(text)


def test_the_length_is_counted_in_characters_after_trimming() -> None:
    assert len(parse_query("\x00 " + "🦔" * 4_000 + " \x00").text) == 4_000
    with pytest.raises(InvalidArgument, match="query_too_long"):
        parse_query("a" * 4_001)


@pytest.mark.parametrize("limit", [0, -1, 51, 2**31 - 1])
def test_a_limit_out_of_range_is_refused(limit: int) -> None:
    with pytest.raises(InvalidArgument, match="limit_out_of_range"):
        parse_query("q", limit=limit)


@pytest.mark.parametrize(
    "kb_id", ["", "1", "x" * 36, f"{{{KB_ID}}}", KB_ID.hex, f"urn:uuid:{KB_ID}", f"{KB_ID} ", "' OR true; --"]
)
def test_what_is_no_uuid_is_refused(kb_id: str) -> None:
    with pytest.raises(InvalidArgument, match="invalid_kb_id"):
        parse_query("q", [kb_id])


def test_more_than_a_hundred_knowledge_bases_are_refused() -> None:
    assert parse_query("q", [str(uuid4()) for _ in range(100)]).kb_ids
    with pytest.raises(InvalidArgument, match="too_many_kb_ids"):
        parse_query("q", [str(uuid4())] * 101)


@pytest.mark.parametrize("min_score", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_least_score_out_of_range_is_refused(min_score: float) -> None:
    with pytest.raises(InvalidArgument, match="min_score_out_of_range"):
        parse_query("q", min_score=min_score)


@pytest.mark.parametrize("channel_id", ["c" * 201, "slack:\x00"])
def test_what_cannot_be_a_channel_is_refused(channel_id: str) -> None:
    with pytest.raises(InvalidArgument, match="invalid_channel_id"):
        parse_query("q", channel_id=channel_id)


def test_an_error_does_not_repeat_the_question() -> None:
    with pytest.raises(InvalidArgument) as error:
        parse_query("secret " * 1_000)
    assert "secret" not in str(error.value)
