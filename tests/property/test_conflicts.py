"""What holds of duplicates and contradictions, whatever the passages say."""

from datetime import UTC, datetime
from itertools import combinations
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from kbmesh.provenance import Tier
from services.search.domain.conflicts import flag_conflicts
from services.search.domain.context import ContextPassage
from services.search.domain.duplicates import collapse
from services.search.domain.ranking import Candidate, rank

[RANKED] = rank([Candidate(UUID(int=0), 1, Tier.CUSTOMER_FACT)], [], now=datetime(2026, 1, 1, tzinfo=UTC))

# Letters that are others in the lower case, and digits and numbers beyond those of tidy texts.
amounts = st.sampled_from(
    ["2", "5", "0", "1,000.5", "9" * 400, "five", "F\u0130VE", "\u0665", "1 million", "1 m\u0130llion"]
)
units = st.sampled_from(["percent", "%", "days", "m\u0130nutes", "EUR", "lockers", ".", "k"])
words = st.sampled_from(["churn", "of parcels", "is", "\n\n", ". The", "$", "-", ""]) | st.text(max_size=4)
texts = st.lists(st.tuples(words, amounts, units).map(" ".join), max_size=8).map("churn ".join)
answers = st.lists(st.tuples(texts, st.sampled_from(Tier)), max_size=8)


@settings(max_examples=60, deadline=None)
@given(answers, st.integers(1, 8), texts)
def test_flags_are_mutual_between_tiers_and_the_higher_tier_comes_first(
    answer: list[tuple[str, Tier]], limit: int, question: str
) -> None:
    ranked = [
        (ContextPassage(UUID(int=number), "use_case", "id", "", text, tier), RANKED.score)
        for number, (text, tier) in enumerate(answer)
    ]

    kept = collapse(ranked, limit)
    flagged = [passage for passage, _ in flag_conflicts(kept, question)]

    assert kept[:1] == () or kept[0][0].chunk_id == UUID(int=0)
    assert len(kept) <= limit
    assert {one.chunk_id for one in flagged} == {one.chunk_id for one, _ in kept}
    for first, second in combinations(flagged, 2):
        assert (second.chunk_id in first.conflicts_with) == (first.chunk_id in second.conflicts_with)
        if second.chunk_id in first.conflicts_with:
            assert first.tier.weight > second.tier.weight
