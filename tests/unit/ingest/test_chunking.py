"""The rules one by one, with a splitter whose tokens are words."""

import re
from itertools import pairwise

from services.ingest.domain.chunking import MAX_CHUNK_CHARS, Span, chunk
from services.ingest.domain.extraction import ChunkDraft, Part, assemble


class WordSplitter:
    """At most 40 words; a cut wherever a piece is full, two words repeated."""

    limit = 40

    def count(self, text: str) -> int:
        return len(text.split())

    def split(self, text: str, room: int, limit: int) -> list[Span]:
        words = [match.span() for match in re.finditer(r"\S+", text)]
        spans = [(words[0][0], words[:room][-1][1])]
        for first in range(room - 2, len(words) - 2, limit - 2):
            piece = words[first : first + limit]
            spans.append((piece[0][0], piece[-1][1]))
        return spans


def words(count: int, word: str = "w") -> str:
    return " ".join(f"{word}{i}" for i in range(count))


def cut(*parts: Part) -> list[ChunkDraft]:
    return chunk(assemble(parts), WordSplitter())


def heading(text: str, level: int | None = 1) -> Part:
    return Part("heading", text, level=level)


def text(content: str, page: int | None = None) -> Part:
    return Part("text", content, page)


def test_an_empty_document_has_no_chunks() -> None:
    assert cut() == []


def test_a_chunk_of_long_words_ends_between_two_of_them() -> None:
    long_words = " ".join(["x" * 900] * 30)
    drafts = cut(text(long_words))
    assert all(len(draft.content) <= MAX_CHUNK_CHARS for draft in drafts)
    assert {word for draft in drafts for word in draft.content.split()} == {"x" * 900}


class _Overlapping(WordSplitter):
    """Its second span repeats most of the first: few words, so little overlap in tokens."""

    def split(self, text: str, room: int, limit: int) -> list[Span]:
        return [(0, 53), (9, len(text))] if text.startswith("w0") else super().split(text, room, limit)


def test_a_span_that_is_cut_by_its_characters_repeats_nothing_of_the_one_before() -> None:
    short = words(18)[:53]
    drafts = chunk(assemble([text(short + " " + " ".join(["x" * 900] * 12))]), _Overlapping())
    assert drafts[0].char_end == 53
    assert [before.char_end < after.char_start for before, after in pairwise(drafts)] == [True] * (len(drafts) - 1)


def test_a_small_document_is_one_chunk() -> None:
    (only,) = cut(heading("Title"), text("One."), text("Two."))
    assert only.content == "Title\n\nOne.\n\nTwo."
    assert (only.ordinal, only.char_start, only.char_end, only.token_count) == (0, 0, 17, 3)


def test_a_heading_opens_a_chunk() -> None:
    first, second = cut(heading("A"), text(words(15)), heading("B"), text(words(5)))
    assert first.content.startswith("A\n\n")
    assert second.content.startswith("B\n\n")


def test_tiny_sections_share_a_chunk() -> None:
    (only,) = cut(heading("A"), text(words(5)), heading("B"), text(words(5)))
    assert only.headings == ("A",)


def test_a_small_section_does_not_join_one_of_a_higher_level() -> None:
    drafts = cut(
        heading("Tables"),
        text(words(15)),
        heading("contact", level=2),
        text(words(3)),
        heading("Metrics"),
        text(words(3)),
    )
    assert [draft.headings for draft in drafts] == [("Tables",), ("Tables", "contact"), ("Metrics",)]


def test_a_heading_without_text_is_not_left_alone_by_one_of_a_higher_level() -> None:
    (only,) = cut(heading("A", level=2), heading("B"), text(words(3)))
    assert only.content.startswith("A\n\nB\n\n")


def test_a_heading_stays_with_a_text_that_must_be_split() -> None:
    first, second, third = cut(text(words(5)), heading("H"), text(words(80)))
    assert first.content.split()[4:7] == ["w4", "H", "w0"]
    assert first.token_count == WordSplitter.limit
    assert second.content.split()[:2] == first.content.split()[-2:]
    assert third.content.split()[:2] == second.content.split()[-2:]
    assert third.content.endswith("w79")


def test_a_long_section_leaves_a_small_rest_for_the_next_one_to_join() -> None:
    first, second = cut(text(words(42)), heading("H"), text("end"))
    assert first.token_count == WordSplitter.limit
    assert second.content == "w38 w39 w40 w41\n\nH\n\nend"


def test_a_table_that_fits_is_kept_whole_and_takes_its_heading_along() -> None:
    table = "\n".join(f"r{i} | x" for i in range(12))
    first, second = cut(text(words(8)), heading("Rows"), Part("table", table))
    assert first.content == words(8)
    assert second.content == f"Rows\n\n{table}"


def test_a_table_that_does_not_fit_is_cut_between_rows_and_stays_apart_from_prose() -> None:
    rows = [f"r{i} | x | y" for i in range(20)]
    first, second, third, fourth, fifth = cut(
        text(words(8)), heading("Rows"), Part("table", "\n".join(rows)), text("after")
    )
    assert first.content == words(8)
    assert second.content == "Rows\n\n" + "\n".join(rows[:7])
    assert third.content == "\n".join(rows[7:15])
    assert fourth.content == "\n".join(rows[15:])
    assert fifth.content == "after"


def test_a_row_longer_than_a_chunk_is_split_like_prose() -> None:
    chunks = cut(Part("table", f"short | row\n{words(60)}\nlast | row"))
    assert [c.content.split()[0] for c in chunks] == ["short", "w0", "w38"]
    assert chunks[-1].content.endswith("w59\nlast | row")


def test_a_heading_as_long_as_a_paragraph_is_treated_as_one() -> None:
    first, second = cut(text(words(15)), heading(words(30, "h")))
    assert first.content.startswith(words(15))
    assert second.content.endswith("h29")


def test_the_path_holds_the_headings_in_force_outermost_first() -> None:
    body = text(words(12))
    titles = [heading("Book", 1), heading("Part  one", 2), heading("Deep", 4), heading("Part two", 2)]
    drafts = cut(*(part for title in titles for part in (title, body)))
    assert [draft.headings for draft in drafts] == [
        ("Book",),
        ("Book", "Part one"),
        ("Book", "Part one", "Deep"),
        ("Book", "Part two"),
    ]


def test_a_heading_of_unknown_level_replaces_the_one_before() -> None:
    first, second, third = cut(
        text(words(12)), heading("A", None), text(words(12)), heading("B", None), text(words(12))
    )
    assert (first.headings, second.headings, third.headings) == ((), ("A",), ("B",))


def test_a_chunk_is_on_the_page_where_it_begins() -> None:
    first, second = cut(text(words(30), page=1), text(words(20), page=2))
    assert (first.page, second.page) == (1, 2)
    first, second = cut(Part("table", words(38), 3), text(words(20), page=4))
    assert (first.page, second.page) == (3, 4)
