from datetime import UTC, datetime, timedelta
from uuid import NAMESPACE_OID, UUID, uuid5

import pytest

from kbmesh.provenance import Tier
from services.search.domain.ranking import Candidate, rank
from services.search.domain.retrieval import CANDIDATES

NOW = datetime(2026, 1, 1, tzinfo=UTC)
A, B, C = (UUID(int=number) for number in (1, 2, 3))
FACT, BENCHMARK, ADVICE = Tier.CUSTOMER_FACT, Tier.INDUSTRY_BENCHMARK, Tier.ADVISORY_GUIDANCE


def order(vector: list[Candidate], keyword: list[Candidate]) -> list[UUID]:
    return [one.chunk_id for one in rank(vector, keyword, now=NOW)]


def test_first_in_both_legs_is_relevance_one() -> None:
    [first, second] = rank([Candidate(A, 0.8, FACT), Candidate(B, 0.8, FACT)], [Candidate(A, 0.1, FACT)], now=NOW)

    assert (first.chunk_id, first.score.relevance, first.score.value) == (A, 1, 1)
    assert (second.chunk_id, second.score.vector_rank, second.score.keyword_rank) == (B, 2, None)
    assert second.score.relevance < 0.5


def test_of_two_similar_passages_the_customer_fact_is_first() -> None:
    assert order(
        [Candidate(A, 0.70, BENCHMARK), Candidate(B, 0.66, FACT)],
        [Candidate(A, 0.08, BENCHMARK), Candidate(B, 0.07, FACT)],
    ) == [B, A]


def test_a_customer_fact_about_something_else_does_not_beat_the_benchmark_that_answers() -> None:
    others = [UUID(int=number) for number in range(10, 30)]
    assert (
        order(
            [Candidate(A, 0.65, BENCHMARK), *(Candidate(other, 0.35, FACT) for other in others)],
            [Candidate(A, 0.09, BENCHMARK), *(Candidate(other, 0.03, FACT) for other in others)],
        )[0]
        == A
    )


def test_advice_comes_first_where_nothing_else_speaks_of_the_matter() -> None:
    [first, *_] = order(
        [Candidate(A, 0.6, ADVICE), Candidate(B, 0.25, FACT)],
        [Candidate(A, 0.1, ADVICE), Candidate(C, 0.04, FACT)],
    )
    assert first == A


@pytest.mark.parametrize("similarity", [0.19, 0.0, -0.4])
def test_what_is_not_similar_at_all_is_left_out(similarity: float) -> None:
    assert order([Candidate(A, similarity, FACT)], []) == []


def test_what_is_far_behind_the_best_of_its_leg_is_left_out() -> None:
    assert order([Candidate(A, 0.8, FACT), Candidate(B, 0.39, FACT)], []) == [A]
    assert order([], [Candidate(A, 0.08, FACT), Candidate(B, 0.019, FACT)]) == [A]


def test_far_behind_in_one_leg_still_counts_in_the_other() -> None:
    first, second = rank([Candidate(A, 0.8, FACT), Candidate(B, 0.3, FACT)], [Candidate(B, 0.1, FACT)], now=NOW)

    assert (first.chunk_id, second.chunk_id) == (B, A)
    assert first.score.relevance == pytest.approx(((0.3 / 0.8 + 1) / 2) ** 2)


def test_out_of_sight_of_a_full_leg_is_nearly_as_near_as_its_last() -> None:
    others = [UUID(int=number) for number in range(10, 10 + CANDIDATES)]
    vector = [Candidate(other, 0.8 - 0.4 * place / (CANDIDATES - 1), FACT) for place, other in enumerate(others)]

    def relevance(vector: list[Candidate]) -> float:
        ranked = rank(vector, [Candidate(A, 0.1, FACT)], now=NOW)
        return next(one.score.relevance for one in ranked if one.chunk_id == A)

    assert relevance(vector) == pytest.approx(((0.8 * 0.5 + 1) / 2) ** 2)
    assert relevance(vector[:-1]) == 0.25  # of a leg that has nothing more to give, nothing


def test_ties_break_on_the_id() -> None:
    ids = [uuid5(NAMESPACE_OID, str(number)) for number in range(40)]
    vector, keyword = sorted(ids[:20], reverse=True), sorted(ids[20:], reverse=True)
    # In each leg the n-th is as good as the n-th of the other.
    found = order(
        [Candidate(chunk_id, 0.9 - n / 100, FACT) for n, chunk_id in enumerate(vector)],
        [Candidate(chunk_id, 0.9 - n / 100, FACT) for n, chunk_id in enumerate(keyword)],
    )

    assert found == [chunk_id for pair in zip(vector, keyword, strict=True) for chunk_id in sorted(pair)]


def test_what_is_past_its_validity_weighs_less_and_the_reason_says_so() -> None:
    [one] = rank([Candidate(A, 0.5, ADVICE, NOW - timedelta(seconds=1))], [], now=NOW)

    assert one.score.value == pytest.approx(0.25 * 0.55 * 0.85)
    assert one.score.reason == ("relevance 0.25 (vector rank 1) x AdvisoryGuidance 0.55 x past its validity 0.85")


def test_nothing_found_is_an_empty_order() -> None:
    assert order([], []) == []
