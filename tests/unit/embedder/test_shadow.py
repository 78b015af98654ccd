from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.embedder.domain.chunks import Found
from services.embedder.domain.shadow import (
    MAX_SENTENCE_CHARS,
    JudgedQuery,
    ShadowReport,
    compare,
    first_sentence,
)

QUERY = JudgedQuery("a question")


def found(*numbers: int) -> list[Found]:
    """Chunks with these ids, two of each source."""
    return [Found(UUID(int=number), f"source-{number // 2}") for number in numbers]


def chunk(number: int) -> str:
    return str(UUID(int=number))


answers = st.lists(st.integers(0, 15), unique=True, max_size=10).map(lambda numbers: found(*numbers))
relevant = st.frozensets(st.integers(0, 20).map(chunk), max_size=4)
pairs = st.lists(st.tuples(answers, answers, relevant), max_size=5)


def compared(pairs: Sequence[tuple[list[Found], list[Found], frozenset[str]]]) -> ShadowReport:
    return compare(
        [JudgedQuery("a question", wanted) for _, _, wanted in pairs],
        [active for active, _, _ in pairs],
        [candidate for _, candidate, _ in pairs],
    )


@given(pairs)
@settings(max_examples=50)
def test_shares_are_between_nothing_and_everything(
    pairs: list[tuple[list[Found], list[Found], frozenset[str]]],
) -> None:
    report = compared(pairs)
    assert 0 <= report.overlap <= 1
    assert 0 <= report.recall_active <= 1
    assert 0 <= report.recall_candidate <= 1
    assert 0 <= report.judged <= report.queries == len(pairs)


@given(pairs)
@settings(max_examples=50)
def test_a_space_compared_with_itself_is_the_same_and_never_refused(
    pairs: list[tuple[list[Found], list[Found], frozenset[str]]],
) -> None:
    report = compared([(active, active[::-1], wanted) for active, _, wanted in pairs])
    assert report.overlap == 1
    assert report.recall_candidate == report.recall_active
    assert report.refusal is None


@given(pairs)
@settings(max_examples=50)
def test_changing_sides_changes_sides_of_the_recall_and_keeps_the_overlap_of_lists_of_one_length(
    pairs: list[tuple[list[Found], list[Found], frozenset[str]]],
) -> None:
    one = compared(pairs)
    other = compared([(candidate, active, wanted) for active, candidate, wanted in pairs])
    assert (other.recall_active, other.recall_candidate) == (one.recall_candidate, one.recall_active)
    if all(len(active) == len(candidate) for active, candidate, _ in pairs):
        assert other.overlap == pytest.approx(one.overlap)


def test_overlap_is_the_mean_share_of_the_active_spaces_answers() -> None:
    report = compare([QUERY, QUERY], [found(1, 2, 3, 4), found(1)], [found(4, 5, 6), found(1, 9)])
    assert report.overlap == pytest.approx((1 / 4 + 1) / 2)


def test_recall_counts_chunks_and_sources_of_judged_queries_alone() -> None:
    queries = [
        JudgedQuery("a", frozenset({chunk(1), chunk(8)})),
        JudgedQuery("b", frozenset({"source-2"})),
        QUERY,
    ]
    report = compare(queries, [found(1, 2), found(3), found(1)], [found(8, 1), found(4, 5), found(2)])
    assert (report.queries, report.judged) == (3, 2)
    assert report.recall_active == pytest.approx((1 / 2 + 0) / 2)
    assert report.recall_candidate == pytest.approx((1 + 1) / 2)


@pytest.mark.parametrize(
    ("report", "refused"),
    [
        (ShadowReport(50, 0.0, 50, 0.8, 0.73), False),
        (ShadowReport(50, 0.9, 50, 0.8, 0.71), True),
        (ShadowReport(50, 0.0, 1, 0.0, 0.0), False),
        (ShadowReport(50, 0.1, 0, 0.0, 0.0), False),
        (ShadowReport(50, 0.09, 0, 0.0, 0.0), True),
        (ShadowReport(0, 1.0, 0, 0.0, 0.0), False),
    ],
    ids=[
        "less than a tenth lost",
        "more lost",
        "nothing found by either",
        "a tenth shared",
        "less shared",
        "no query",
    ],
)
def test_recall_decides_where_there_are_judgements_and_overlap_where_there_are_none(
    report: ShadowReport, refused: bool
) -> None:
    assert (report.refusal is not None) is refused


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("  Churn is\n  a rate. It is monthly.", "Churn is a rate."),
        ("Version 2.5 is out! Read on.", "Version 2.5 is out!"),
        ("Overview\n\nAll of it. More.", "Overview"),
        ("解約率とは。月次です。", "解約率とは。"),
        ("no end to it", "no end to it"),
        ("word " * 500, ("word " * 500)[:MAX_SENTENCE_CHARS]),
        (" \n\n ", ""),
    ],
)
def test_the_first_sentence_is_the_query(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence
