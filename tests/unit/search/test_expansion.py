"""Passages with what stands beside them in their documents."""

import hashlib
from datetime import UTC, datetime
from uuid import UUID

from kbmesh.provenance import Category, Tier
from services.search.domain.expansion import merge
from services.search.domain.passages import Citation, Part, Passage
from services.search.domain.ranking import Candidate, rank

[RANKED] = rank([Candidate(UUID(int=0), 1, Tier.CUSTOMER_FACT)], [], now=datetime(2026, 1, 1, tzinfo=UTC))

TEXT = "# Title\n\nOne sentence. Another sentence. A third one.\n\nThe next block. Its end, and no more."
SPANS = [(0, 22), (23, 40), (31, 53), (55, 70), (71, len(TEXT))]
"""Of chunks: a space between, an overlap, a blank line, and a space."""
PARTS = [
    Part(ordinal, TEXT[start:end], ordinal + 1, (f"h{ordinal}",), start, end)
    for ordinal, (start, end) in enumerate(SPANS)
]


def passage(ordinal: int, around: int = 1, document: int = 1, duplicates: tuple[UUID, ...] = ()) -> Passage:
    chunk = PARTS[ordinal]
    return Passage(
        UUID(int=ordinal),
        UUID(int=document),
        UUID(int=0),
        "a.txt",
        Category.OTHER,
        chunk.content,
        Tier.CUSTOMER_FACT,
        Citation(chunk.page, chunk.headings, chunk.char_start, chunk.char_end, bytes(32)),
        tuple(PARTS[max(0, ordinal - around) : ordinal + around + 1]),
        duplicates,
    )


def merged(*passages: Passage, limit: int = 10) -> list[Passage]:
    return [one for one, _ in merge([(one, RANKED.score) for one in passages], limit)]


def test_a_passage_is_the_text_of_the_document_from_its_first_chunk_to_its_last() -> None:
    for ordinal in range(len(PARTS)):
        for around in range(4):
            [found] = merged(passage(ordinal, around))
            citation, parts = found.citation, found.parts

            assert found.content == TEXT[parts[0].char_start : parts[-1].char_end]
            assert (citation.char_start, citation.char_end) == (parts[0].char_start, parts[-1].char_end)
            assert (citation.page, citation.headings) == (parts[0].page, parts[0].headings)
            assert citation.content_sha256 == hashlib.sha256(found.content.encode()).digest()
            assert found.chunk_id == UUID(int=ordinal)


def test_passages_that_come_to_share_a_chunk_are_one_in_the_place_of_the_best() -> None:
    other, copy = passage(0, document=2), UUID(int=9)

    found = merged(passage(3), other, passage(1, duplicates=(copy,)))

    assert [(one.chunk_id.int, one.document_id.int) for one in found] == [(3, 1), (0, 2)]
    assert found[0].content == TEXT
    assert found[0].duplicates == (copy,)


def test_a_passage_that_closes_the_gap_between_two_makes_them_one() -> None:
    [found] = merged(passage(4, 0), passage(0, 0), passage(2, 2))

    assert (found.chunk_id, found.content) == (UUID(int=4), TEXT)


def test_passages_apart_stay_apart_and_are_no_more_than_asked_for() -> None:
    apart = [passage(0, 0), passage(1, 0), passage(2, 0)]

    assert [one.content for one in merged(*apart)] == [TEXT[start:end] for start, end in SPANS[:3]]
    assert [one.chunk_id.int for one in merged(*apart, passage(0, 1), limit=2)] == [0, 1]
