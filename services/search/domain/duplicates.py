"""Leaves out passages that say again what a better one says."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeVar
from uuid import UUID

from kbmesh.provenance import DOCUMENT_CHUNK
from services.search.domain.context import ContextPassage
from services.search.domain.passages import Passage
from services.search.domain.ranking import Score

SPARE: Final = 25
"""Passages read beyond those asked for, so that an answer from which duplicates were left out is filled up."""
MAX_DUPLICATES: Final = 10
"""Named on the passage that stands for them."""

SHINGLE: Final = 5
NEARLY_ALL: Final = 0.8
"""Jaccard similarity of the sets of SHINGLE words in a row, both as Lee et al. 2022 (Deduplicating Training Data
Makes Language Models Better) take them. In 350 words that leaves room for seven changed ones. Chunks that follow
one another have 0.07: an eighth of each is overlap."""

_WORD: Final = re.compile(r"\w+|[%‰€$£¥]")
_TELLING: Final = re.compile(
    r".*\d.*|[%‰€$£¥]|no|not|never|nor|none|neither|without|cannot|t"  # the t of "don't"
    r"|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand|million|billion|half|third|quarter|percent"
)
"""Words that change what is said: a text with another number is no duplicate, and may be a contradiction."""

P = TypeVar("P", Passage, ContextPassage)


def collapse(ranked: Iterable[tuple[P, Score]], limit: int) -> tuple[tuple[P, Score], ...]:
    """The first `limit` of `ranked`, best first, but for those that say again what a better one says: it stands
    for them, and names them as its `duplicates`."""
    kept: list[tuple[P, Score]] = []
    words_of: list[_Words] = []
    repeating: list[list[UUID]] = []
    for passage, score in ranked:
        words = _Words(passage.content, _subject(passage))
        again = next((ids for its, ids in zip(words_of, repeating, strict=True) if words.repeat(its)), None)
        if again is not None:
            again.append(passage.chunk_id)
            continue
        kept.append((passage, score))
        words_of.append(words)
        repeating.append([])
        if len(kept) == limit:
            break
    return tuple(
        (replace(passage, duplicates=tuple(ids[:MAX_DUPLICATES])), score)
        for (passage, score), ids in zip(kept, repeating, strict=True)
    )


def _subject(passage: Passage | ContextPassage) -> str:
    """What the text alone does not say: profiles of two columns may be equal. Files are copied and renamed."""
    return passage.title if isinstance(passage, ContextPassage) and passage.kind != DOCUMENT_CHUNK else ""


@dataclass(frozen=True)
class _Words:
    text: str
    subject: str

    def repeat(self, better: "_Words") -> bool:
        """Word for word a part of `better`, or nearly the same with the same numbers and negations."""
        if self.subject != better.subject:
            return False
        shared = len(self.shingles & better.shingles)
        of_both = len(self.shingles) + len(better.shingles) - shared
        return shared == len(self.shingles) or (shared >= NEARLY_ALL * of_both and self.telling == better.telling)

    @cached_property
    def words(self) -> list[str]:
        # Without words, a text is the same as itself alone.
        return _WORD.findall(self.text.casefold()) or [self.text]

    @cached_property
    def shingles(self) -> frozenset[tuple[str, ...]]:
        return frozenset(
            tuple(self.words[start : start + SHINGLE]) for start in range(max(1, len(self.words) - SHINGLE + 1))
        )

    @cached_property
    def telling(self) -> Counter[str]:
        return Counter(word for word in self.words if _TELLING.fullmatch(word))
