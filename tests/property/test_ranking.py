"""What holds for every two legs, however odd."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kbmesh.provenance import Tier
from services.search.domain.ranking import Candidate, Ranked, rank

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CHUNKS = [UUID(int=number) for number in range(12)]

provenance = st.tuples(st.sampled_from(Tier), st.sampled_from([None, NOW - timedelta(1), NOW + timedelta(1)]))
sources = st.fixed_dictionaries(dict.fromkeys(CHUNKS, provenance))
cosines = st.dictionaries(st.sampled_from(CHUNKS), st.floats(-1, 1))
keyword_scores = st.dictionaries(st.sampled_from(CHUNKS), st.floats(0, 1, exclude_min=True))

Sources = dict[UUID, tuple[Tier, datetime | None]]
Leg = dict[UUID, float]


def candidates(leg: Leg, source: Sources) -> list[Candidate]:
    return [Candidate(chunk_id, similarity, *source[chunk_id]) for chunk_id, similarity in leg.items()]


def ranked(vector: Leg, keyword: Leg, source: Sources) -> list[Ranked]:
    return rank(candidates(vector, source), candidates(keyword, source), now=NOW)


def value_of(chunk_id: UUID, order: Sequence[Ranked]) -> float:
    return next((one.score.value for one in order if one.chunk_id == chunk_id), 0.0)


@given(cosines, keyword_scores, sources, st.randoms())
def test_the_order_in_which_a_leg_answers_does_not_matter(
    vector: Leg, keyword: Leg, source: Sources, random: Random
) -> None:
    shuffled_vector, shuffled_keyword = candidates(vector, source), candidates(keyword, source)
    random.shuffle(shuffled_vector)
    random.shuffle(shuffled_keyword)

    assert rank(shuffled_vector, shuffled_keyword, now=NOW) == ranked(vector, keyword, source)


@given(cosines, keyword_scores, sources)
def test_scores_are_within_bounds_and_add_up(vector: Leg, keyword: Leg, source: Sources) -> None:
    for one in ranked(vector, keyword, source):
        score = one.score
        assert 0 < score.relevance <= 1
        assert 0 < score.value <= 1
        assert score.value == score.relevance * score.tier_weight * score.freshness
        assert score.vector_rank is not None or score.keyword_rank is not None


@given(cosines, keyword_scores, sources)
def test_every_chunk_stands_once_best_first(vector: Leg, keyword: Leg, source: Sources) -> None:
    order = ranked(vector, keyword, source)
    keys = [(-one.score.value, one.chunk_id) for one in order]

    assert keys == sorted(keys)
    assert len({one.chunk_id for one in order}) == len(order)
    assert {one.chunk_id for one in order} <= vector.keys() | keyword.keys()


@given(cosines, keyword_scores, sources, st.sampled_from(CHUNKS), st.floats(0, 1))
def test_more_similar_is_never_worth_less(
    vector: Leg, keyword: Leg, source: Sources, chunk_id: UUID, similarity: float
) -> None:
    before = value_of(chunk_id, ranked(vector, keyword, source))
    nearer = vector | {chunk_id: max(similarity, vector.get(chunk_id, -1))}

    assert value_of(chunk_id, ranked(nearer, keyword, source)) >= before


@given(cosines, keyword_scores, sources, st.sampled_from(CHUNKS))
def test_a_higher_tier_is_never_worth_less(vector: Leg, keyword: Leg, source: Sources, chunk_id: UUID) -> None:
    before = value_of(chunk_id, ranked(vector, keyword, source))
    raised = source | {chunk_id: (Tier.CUSTOMER_FACT, source[chunk_id][1])}

    assert value_of(chunk_id, ranked(vector, keyword, raised)) >= before


@given(cosines, keyword_scores, sources, st.sampled_from(CHUNKS), st.sampled_from(CHUNKS))
def test_as_good_in_both_legs_and_of_a_higher_tier_is_never_behind(
    vector: Leg, keyword: Leg, source: Sources, better: UUID, worse: UUID
) -> None:
    if better != worse:
        vector[better], keyword[better] = vector.get(worse, 0.5), keyword.get(worse, 0.5)
        vector[worse], keyword[worse] = vector[better] - 0.01, keyword[better] / 2
        source[better], source[worse] = (Tier.CUSTOMER_FACT, None), (source[worse][0], source[worse][1])

        order = ranked(vector, keyword, source)

        assert value_of(better, order) >= value_of(worse, order)


@given(cosines)
def test_being_first_in_both_legs_is_relevance_one(leg: Leg) -> None:
    lifted = {chunk_id: abs(similarity) + 0.2 for chunk_id, similarity in leg.items()}
    facts: Sources = dict.fromkeys(CHUNKS, (Tier.CUSTOMER_FACT, None))

    assert [one.score.value for one in ranked(lifted, lifted, facts)[:1]] == [1.0] * bool(leg)
