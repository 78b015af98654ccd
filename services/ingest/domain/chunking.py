"""Cuts a document into chunks that an embedding model reads whole.

Prose is cut between sentences and paragraphs, tables between rows. A heading opens a chunk, unless the one that
is open is still small and of the same or a higher section, and always stays with what follows it.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Protocol

from services.ingest.domain.extraction import Block, BlockKind, ChunkDraft, ExtractedDocument

Span = tuple[int, int]

# No text of real words comes near it; what the model has no token for can be of any length and count as one.
MAX_CHUNK_CHARS = 10_000

# The room for a header is reserved in steps of so many tokens, so that a small change of one moves no cuts.
_HEADER_STEP = 8


class Splitter(Protocol):
    """Measures and cuts text in the tokens of the embedding model, its special tokens left out.

    Tokens never reach over white space, so that the counts of two pieces add up.
    """

    @property
    def limit(self) -> int:
        """Tokens that the model reads."""

    def count(self, text: str) -> int: ...

    def split(self, text: str, room: int, limit: int) -> list[Span]:
        """Spans in code points: the first of at most `room` tokens, the others of at most `limit`. They move on
        in order, overlap a little, and together cover all but white space; a cut is inside a word only where
        the word alone is over the limit."""


def no_header(_: tuple[str, ...]) -> str:
    return ""


def chunk(
    document: ExtractedDocument, splitter: Splitter, header: Callable[[tuple[str, ...]], str] = no_header
) -> list[ChunkDraft]:
    """The chunks of a document in reading order, of at most MAX_CHUNK_CHARS; none for a document without text
    or with nothing in it that the model can read (marks of writing direction).

    `header` makes of the headings in force where a chunk begins what the model reads ahead of it, together with
    it and a blank line at most `splitter.limit` tokens.
    """

    @cache
    def headed(headings: tuple[str, ...]) -> tuple[str, int]:
        """A header, and the tokens that are left for the content."""
        text = header(headings)
        reserved = splitter.count(f"{text}\n\n") if text else 0
        return text, splitter.limit - -(-reserved // _HEADER_STEP) * _HEADER_STEP

    paths = list(_heading_paths(document))
    cutter = _Cutter(document, splitter, [headed(path)[1] for path in paths])
    drafts: list[ChunkDraft] = []
    for start, end in cutter.cut():
        first = cutter.block_at(start)
        content = document.text[start:end]
        if not (tokens := splitter.count(content)):
            continue
        drafts.append(
            ChunkDraft(
                ordinal=len(drafts),
                content=content,
                char_start=start,
                char_end=end,
                token_count=tokens,
                page=document.blocks[first].page,
                headings=paths[first],
                header=headed(paths[first])[0],
            )
        )
    return drafts


def _skip_space(text: str, begin: int, end: int) -> int:
    while begin < end and text[begin].isspace():
        begin += 1
    return begin


def _last_space(text: str) -> int | None:
    """Where the white space before the last word begins; None if it is one word. `text` begins with a word."""
    words = text.rsplit(None, 1)
    return len(words[0]) if len(words) == 2 else None


def _heading_paths(document: ExtractedDocument) -> Iterator[tuple[str, ...]]:
    """For each block the headings in force there, its own included. A heading of unknown level is outermost."""
    open_headings: list[tuple[int, str]] = []
    for block in document.blocks:
        if block.kind == "heading":
            level = block.level or 1
            while open_headings and open_headings[-1][0] >= level:
                open_headings.pop()
            open_headings.append((level, " ".join(document.text[block.start : block.end].split())))
        yield tuple(text for _, text in open_headings)


@dataclass(slots=True)
class _Open:
    """The chunk being gathered: its span, where the headings at its very end begin, and the level of the heading
    that its beginning stands under."""

    start: int
    end: int
    headings_start: int
    level: int


class _Cutter:
    def __init__(self, document: ExtractedDocument, splitter: Splitter, limits: list[int]) -> None:
        """`limits`: the size that a chunk may have which begins in this block."""
        self._text = document.text
        self._blocks = document.blocks
        self._starts = [block.start for block in document.blocks]
        self._splitter = splitter
        self._limits = limits
        self._small = splitter.limit // 4
        self._open: _Open | None = None
        self._level = 0

    def cut(self) -> Iterator[Span]:
        for kind, blocks in groupby(self._blocks, key=self._kind):
            if kind == "text":
                run = list(blocks)
                yield from self._add_prose(run[0].start, run[-1].end)
                continue
            add = self._add_heading if kind == "heading" else self._add_table
            for block in blocks:
                yield from add(block)
        yield from self._close()

    def block_at(self, position: int) -> int:
        return bisect_right(self._starts, position) - 1

    def _limit_at(self, position: int) -> int:
        return self._limits[self.block_at(position)]

    def _kind(self, block: Block) -> BlockKind:
        # What is called a heading but is as long as a paragraph would crowd out the text it stands over.
        if block.kind == "heading" and self._size(block.start, block.end) > self._small:
            return "text"
        return block.kind

    def _size(self, start: int, end: int) -> int:
        """In tokens, but never so few that a text within the limit had more than MAX_CHUNK_CHARS."""
        tokens = self._splitter.count(self._text[start:end])
        return max(tokens, -((start - end) * self._splitter.limit // MAX_CHUNK_CHARS))

    def _characters(self, size: int) -> int:
        return size * MAX_CHUNK_CHARS // self._splitter.limit

    def _split(self, start: int, end: int, room: int) -> Iterator[Span]:
        """Spans within the limit, the first within `room`."""
        # Prose may hold headings as long as paragraphs, so that not all of it is under the same.
        limit = min(self._limits[self.block_at(start) : self.block_at(end - 1) + 1])
        covered = done = start
        for a, b in self._splitter.split(self._text[start:end], room, limit):
            begin, stop = max(start + a, covered), start + b
            # Few tokens can be a long overlap: neither an over-long span nor what follows it repeats anything.
            if too_long := stop - begin > self._characters(room):
                begin = max(begin, done)
            if too_long or begin > start + a:
                yield from self._split_by_characters(begin, stop, room, limit)
            else:
                yield begin, stop
            done = _skip_space(self._text, stop, end)
            covered = done if too_long else start
            room = limit

    def _split_by_characters(self, begin: int, end: int, room: int, limit: int) -> Iterator[Span]:
        while begin < end:
            piece = self._text[begin : min(end, begin + self._characters(room))]
            if begin + len(piece) < end:
                piece = piece[: _last_space(piece)]
            # Where a word is cut, its end may count more tokens than the word.
            yield from ((begin + a, begin + b) for a, b in self._splitter.split(piece, room, limit))
            begin = _skip_space(self._text, begin + len(piece), end)
            room = limit

    def _close(self) -> Iterator[Span]:
        if self._open:
            yield self._open.start, self._open.end
        self._open = None

    def _fits(self, start: int, end: int) -> bool:
        begin = self._open.start if self._open else start
        return self._size(begin, end) <= self._limit_at(begin)

    def _extend(self, start: int, end: int) -> None:
        """Adds text, not headings, to the open chunk."""
        if self._open is None:
            self._open = _Open(start, end, headings_start=end, level=self._level)
        self._open.end = self._open.headings_start = end

    def _add_heading(self, block: Block) -> Iterator[Span]:
        self._level = block.level or 1
        if self._open and self._ends_at(self._level, self._open):
            yield from self._close()
        if self._open is None:
            self._open = _Open(block.start, block.end, headings_start=block.start, level=self._level)
        elif self._open.headings_start == self._open.end:
            self._open.headings_start = block.start
        self._open.end = block.end

    def _ends_at(self, level: int, chunk: _Open) -> bool:
        """Whether `chunk` ends at a heading of `level`: it is large enough, or its own section is over."""
        if self._size(chunk.start, chunk.end) >= self._small:
            return True
        return level < chunk.level and chunk.headings_start > chunk.start

    def _add_prose(self, start: int, end: int) -> Iterator[Span]:
        if self._fits(start, end):
            self._extend(start, end)
            return
        if self._open and self._size(self._open.start, self._open.end) > self._splitter.limit // 2:
            yield from self._close()
        # The first piece shares its chunk with what is open; the others have a chunk for themselves.
        for span in self._split(start, end, self._room(start)):
            if self._open and self._open.end > start:
                yield from self._close()
            self._extend(*span)

    def _add_table(self, block: Block) -> Iterator[Span]:
        if not self._fits(block.start, block.end):
            yield from self._close_before_headings()
        if self._fits(block.start, block.end):
            self._extend(block.start, block.end)
            return
        yield from self._pack_rows(block)

    def _close_before_headings(self) -> Iterator[Span]:
        if self._open is None:
            return
        headings_start, end = self._open.headings_start, self._open.end
        if headings_start > self._open.start:
            yield self._open.start, self._trimmed_end(headings_start)
        self._open = _Open(headings_start, end, headings_start, self._level) if headings_start < end else None

    def _pack_rows(self, table: Block) -> Iterator[Span]:
        """Whole rows, as many as fit in a chunk; the first chunk also takes the headings over the table."""
        room = self._room(table.start)
        left = room
        done = table.start
        for start, end in self._rows(table, room):
            size = self._size(min(start, done), end)
            if self._open and self._open.end > table.start and size > left:
                yield from self._close()
                left = self._limit_at(start)
            self._extend(start, end)
            left -= size
            done = end
        yield from self._close()

    def _rows(self, table: Block, room: int) -> Iterator[Span]:
        start = table.start
        for row in self._text[table.start : table.end].split("\n"):
            end = start + len(row)
            if self._size(start, end) > room:
                yield from self._split(start, end, room)
            elif row.strip():
                yield start, end
            start = end + 1

    def _room(self, start: int) -> int:
        """Size left in the open chunk for text that begins at `start`."""
        begin = self._open.start if self._open else start
        return self._limit_at(begin) - self._size(begin, start)

    def _trimmed_end(self, end: int) -> int:
        return len(self._text[:end].rstrip())
