"""Which passages are said to contradict one another, and in which order they then stand."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from kbmesh.provenance import Tier
from services.search.domain.conflicts import flag_conflicts
from services.search.domain.context import ContextPassage
from services.search.domain.figures import statements_of
from services.search.domain.formatting import format_passages
from services.search.domain.ranking import Candidate, rank

[RANKED] = rank([Candidate(UUID(int=0), 1, Tier.CUSTOMER_FACT)], [], now=datetime(2026, 1, 1, tzinfo=UTC))
FACT, PRACTICE, BENCHMARK, ADVICE = Tier

RETURN = "A parcel may be returned within 14 days."


def passage(number: int, tier: Tier, content: str, *headings: str) -> ContextPassage:
    kind = "document_chunk"
    return ContextPassage(UUID(int=number), kind, "id", f"{number}.txt", content, tier, headings=headings)


def flagged(
    *passages: ContextPassage,
    ask: str = "Within how many days can a parcel be returned?",
    by_provenance: bool = True,
) -> dict[int, list[int]]:
    """In the order of the answer, each passage with those that it contradicts."""
    found = flag_conflicts([(one, RANKED.score) for one in passages], ask, by_provenance=by_provenance)
    return {one.chunk_id.int: [other.int for other in one.conflicts_with] for one, _ in found}


@pytest.mark.parametrize(
    ("ask", "fact", "benchmark"),
    [
        ("When can parcels be returned?", RETURN, "Most carriers let a parcel be returned within thirty days."),
        ("churn", "Churn is 2 percent.", "Churn elsewhere is 5%."),
        ("What does a parcel cost?", "A parcel costs us €4.18.", "The median parcel costs 4.65 euro."),
        (
            "revenue of shops",
            "Shops have a revenue of 2 million euro.",
            "The revenue of shops is 3.1 million EUR.",
        ),
        ("How many lockers?", "We run 310 lockers.", "Carriers run 1,200 lockers in the median."),
        ("net promoter score", "The net promoter score was 34.", "A net promoter score of 60 is usual."),
    ],
    ids=["time", "percent", "currency", "large", "things", "plain"],
)
def test_different_numbers_for_one_subject_are_flagged_on_both_and_the_higher_tier_comes_first(
    ask: str, fact: str, benchmark: str
) -> None:
    found = flagged(passage(1, BENCHMARK, benchmark), passage(2, FACT, fact), ask=ask)

    assert list(found.items()) == [(2, [1]), (1, [2])]


@pytest.mark.parametrize(
    "other",
    [
        "A parcel may be returned within two weeks.",
        "A parcel may be returned within 14.0 days.",
        "A parcel may be returned by 30 percent of recipients.",
        "A parcel that may be returned weighs 2 kilograms.",
        "A parcel could be returned until 2021-06-30, and from 1 June 2024 on at 18:00.",
        "A parcel may be returned as version 2.4.1 of page 30 says, see DAYS-30 or section 30 days.",
        "A parcel may be returned within 20 to 30 days.",
        "A parcel may be returned within 1 second.",
        "Drivers have a break of 30 days.",
        "30 days\n\nA parcel may be returned.",
    ],
)
def test_what_does_not_contradict_is_not_flagged(other: str) -> None:
    assert flagged(passage(1, FACT, RETURN), passage(2, BENCHMARK, other)) == {1: [], 2: []}


def test_sources_of_one_tier_and_figures_of_different_years_are_not_in_conflict() -> None:
    other = RETURN.replace("14", "30")

    assert flagged(passage(1, FACT, RETURN), passage(2, FACT, other)) == {1: [], 2: []}
    old, new = f"In 2021: {RETURN}", f"In 2026: {other}"
    assert flagged(passage(1, FACT, old), passage(2, BENCHMARK, new)) == {1: [], 2: []}


def test_the_heading_tells_what_a_sentence_is_about() -> None:
    cost = passage(1, FACT, "It was 4.18 euro in September.", "Metrics", "Cost of a parcel")
    other = passage(2, BENCHMARK, "The median is 4.65 euro.", "Cost of a parcel")

    assert flagged(cost, other, ask="What does a parcel cost?") == {1: [2], 2: [1]}


def test_what_conflicts_with_nothing_keeps_its_place() -> None:
    texts = [RETURN.replace("14", days) for days in ("60", "30", "14")]
    advice, benchmark, fact = (
        passage(number, tier, text)
        for number, (tier, text) in enumerate(zip((ADVICE, BENCHMARK, FACT), texts, strict=True), start=1)
    )
    others = [passage(number, FACT, "Parcels can be returned in shops.") for number in (4, 5)]

    listed = (others[0], advice, benchmark, others[1], fact)

    assert flagged(*listed) == {4: [], 3: [1, 2], 2: [1, 3], 1: [2, 3], 5: []}
    assert list(flagged(*listed)) == [4, 3, 2, 1, 5]
    assert list(flagged(*listed, by_provenance=False)) == [4, 1, 2, 5, 3]


def test_the_text_for_a_prompt_says_from_which_a_passage_differs() -> None:
    listed = [passage(1, BENCHMARK, RETURN.replace("14", "30")), passage(2, FACT, RETURN)]

    text = format_passages(flag_conflicts([(one, RANKED.score) for one in listed], "parcel returned"), 4_000).text

    assert "[UPLOADED DOCUMENT: 2.txt] CustomerFact, differs from passage 2\n" in text
    assert "[UPLOADED DOCUMENT: 1.txt] IndustryBenchmark, differs from passage 1\n" in text


def test_a_table_of_numbers_states_nothing() -> None:
    row = ", ".join(f"{number} percent" for number in range(20, 40))

    assert list(statements_of(f"Shares: {row}.")) == []
