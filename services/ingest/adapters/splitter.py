"""Counts and cuts text in the tokens of a Hugging Face tokenizer."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from semantic_text_splitter import TextSplitter
from tokenizers import Tokenizer

from services.ingest.domain.chunking import Span

_SENTENCE_START = re.compile(r"[.!?…][\"'”’)\]]*\s+|[。！？]|\n+")
_WORD_START = re.compile(r"\s+")
# The libraries need some hundreds of bytes for a character, and end the process where they get none.
_MAX_CHARS_AT_ONCE = 100_000


class TokenizerSplitter:
    """`limit` leaves room in `max_tokens` for the special tokens that the model adds.

    A chunk that goes on from another begins with up to `overlap` tokens of it, from the start of a sentence
    where one starts there, else of a word.
    """

    def __init__(self, tokenizer_path: Path, *, max_tokens: int = 512, overlap: int = 64) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer_path))
        # The file may ask for both, and would then never count past its own limit.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.limit = max_tokens - self._tokenizer.num_special_tokens_to_add(is_pair=False)
        self._overlap = overlap
        self._library = lru_cache(maxsize=64)(self._library_splitter)

    def count(self, text: str) -> int:
        return sum(
            len(self._tokenizer.encode(text[start:end], add_special_tokens=False).ids)
            for start, end in _portions(text, 0)
        )

    def split(self, text: str, room: int, limit: int) -> list[Span]:
        # The library overlaps by whole units only, so by nothing at all where paragraphs are longer than the
        # overlap: it cuts with room to spare here, and the room is filled from the chunk before.
        usual = limit - self._overlap
        spans = self._pieces(text, 0, min(room, usual))
        if room < usual and len(spans) > 1:
            spans = spans[:1] + self._pieces(text, spans[1][0], usual)
        return spans[:1] + [
            (self._overlap_start(text, before, start), end) for (before, _), (start, end) in pairwise(spans)
        ]

    def _pieces(self, text: str, start: int, limit: int) -> list[Span]:
        return [
            (portion + offset, portion + offset + len(piece))
            for portion, end in _portions(text, start)
            for offset, piece in self._library(limit).chunk_indices(text[portion:end])
        ]

    def _overlap_start(self, text: str, before: int, start: int) -> int:
        """Where a chunk begins that repeats the end of `text[before:start]`, but not all of it."""
        encoding = self._tokenizer.encode(text[before:start], add_special_tokens=False)
        earliest = before + encoding.offsets[-self._overlap :][0][0]
        for boundary in (_SENTENCE_START, _WORD_START):
            for match in boundary.finditer(text, before, start):
                if match.end() >= earliest and before < match.end() < start:
                    return match.end()
        return start

    def _library_splitter(self, limit: int) -> TextSplitter:
        return TextSplitter.from_huggingface_tokenizer(self._tokenizer, limit)


def _portions(text: str, start: int) -> Iterator[Span]:
    """The text from `start`, cut between lines, else between words, else inside of one."""
    while (end := start + _MAX_CHARS_AT_ONCE) < len(text):
        # Not where it begins: a portion is never empty.
        breaks = (text.rfind(space, start + 1, end) for space in "\n ")
        end = next((found for found in breaks if found > 0), end)
        yield start, end
        start = end
    yield start, len(text)
