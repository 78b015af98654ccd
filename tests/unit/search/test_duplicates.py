"""What says again what a better passage says, and what only looks like it."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from kbmesh.provenance import Tier
from services.search.domain.context import ContextPassage
from services.search.domain.duplicates import MAX_DUPLICATES, collapse
from services.search.domain.ranking import Candidate, rank

[RANKED] = rank([Candidate(UUID(int=0), 1, Tier.CUSTOMER_FACT)], [], now=datetime(2026, 1, 1, tzinfo=UTC))

RETURNS = (
    "A recipient may return a parcel with the code in the app, at any parcel shop, within 14 days, without"
    " printing a label. The sender pays 2.95 euro for each. Returns reach the sender in three working days."
    " Opened cosmetics and food are not taken back. Whoever sends more than 500 parcels a month gets the reports"
    " on returns by mail."
)
OTHER = "The canteen of the Marlow hub serves 400 meals a day, half of them before five in the morning."


def passage(number: int, content: str, kind: str = "document_chunk", title: str = "") -> ContextPassage:
    return ContextPassage(UUID(int=number), kind, "id", title, content, Tier.CUSTOMER_FACT)


def kept(*passages: ContextPassage, limit: int = 10) -> dict[int, list[int]]:
    """The passages that stay, each with those that it stands for."""
    collapsed = collapse([(one, RANKED.score) for one in passages], limit)
    return {one.chunk_id.int: [other.int for other in one.duplicates] for one, _ in collapsed}


@pytest.mark.parametrize(
    "again",
    [
        RETURNS,
        RETURNS.upper().replace(" ", "\n"),
        RETURNS.replace("at any parcel shop", "at every parcel shop"),
        "within 14 days, without printing a label. The sender pays 2.95 euro",
    ],
    ids=["the same", "laid out in another way", "one word changed", "a part of it"],
)
def test_what_a_better_passage_says_is_not_said_again(again: str) -> None:
    assert kept(passage(1, RETURNS), passage(2, OTHER), passage(3, again)) == {1: [3], 2: []}


@pytest.mark.parametrize(
    "other",
    [
        RETURNS.replace("14", "30"),
        RETURNS.replace("2.95 euro", "2.95 $"),
        RETURNS.replace("three working days", "five working days"),
        RETURNS.replace("are not taken", "are taken"),
        f"{RETURNS} {RETURNS[:80]} {OTHER} Depots with fewer than forty people have a kitchen instead.",
        RETURNS.split()[0],
    ],
    ids=["a number", "a currency", "a number in words", "a negation", "much more", "one of its words"],
)
def test_a_change_that_changes_what_is_said_is_no_duplicate(other: str) -> None:
    assert kept(passage(1, RETURNS), passage(2, other)) == {1: [], 2: []}


def test_chunks_that_follow_one_another_are_no_duplicates_for_their_overlap() -> None:
    words = [f"word{number}" for number in range(800)]

    assert kept(passage(1, " ".join(words[:400])), passage(2, " ".join(words[350:]))) == {1: [], 2: []}
    assert kept(passage(1, " ".join(words[:400])), passage(2, " ".join(words[350:410]))) == {1: [], 2: []}


def test_records_about_two_things_may_say_the_same_of_them() -> None:
    first, second = (passage(number, RETURNS, "column_profile", f"t.{number}") for number in (1, 2))

    assert kept(first, second, passage(3, RETURNS, "table_health", "t.1")) == {1: [3], 2: []}
    assert kept(passage(1, RETURNS, title="a.pdf"), passage(2, RETURNS, title="b.pdf")) == {1: [2]}


def test_the_answer_is_filled_up_from_what_comes_next() -> None:
    copies = [passage(number, RETURNS) for number in range(1, 31)]

    assert kept(*copies, passage(40, OTHER), limit=2) == {1: list(range(2, 2 + MAX_DUPLICATES)), 40: []}
    assert kept(*copies, passage(40, OTHER), limit=1) == {1: []}
