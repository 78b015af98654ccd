"""Merges passages with the chunks beside them into longer ones."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from services.search.domain.passages import Passage
from services.search.domain.ranking import Score


def merge(ranked: Iterable[tuple[Passage, Score]], limit: int) -> tuple[tuple[Passage, Score], ...]:
    """The first `limit` of `ranked`, each with the parts around it as one text. Those that have a part in common
    become one passage, in the place of the best of them, so that no text stands twice but for overlaps."""
    merged: list[tuple[Passage, Score]] = []
    for passage, score in ranked:
        same = [one for one in merged if _meet(one[0], passage)]
        if not same:
            if len(merged) == limit:
                break
            merged.append((passage, score))
            continue
        # A passage can close the gap between two.
        (best, its_score), *others = same
        merged[merged.index(same[0])] = (_union(best, [*(one for one, _ in others), passage]), its_score)
        merged = [one for one in merged if one not in others]
    return tuple((_joined(passage), score) for passage, score in merged)


def _meet(one: Passage, other: Passage) -> bool:
    return one.document_id == other.document_id and bool(_ordinals(one) & _ordinals(other))


def _ordinals(passage: Passage) -> set[int]:
    return {part.ordinal for part in passage.parts}


def _union(best: Passage, others: Sequence[Passage]) -> Passage:
    parts = {part.ordinal: part for one in (best, *others) for part in one.parts}
    duplicates = dict.fromkeys(chunk_id for one in (best, *others) for chunk_id in one.duplicates)
    return replace(best, parts=tuple(parts[ordinal] for ordinal in sorted(parts)), duplicates=tuple(duplicates))


def _joined(passage: Passage) -> Passage:
    """Chunks repeat the end of the one before, or leave out the white space between blocks."""
    first, *others = passage.parts
    content, end = first.content, first.char_end
    for part in others:
        gap = part.char_start - end
        content += part.content[-gap:] if gap < 0 else ("", " ", "\n\n")[min(gap, 2)] + part.content
        end = part.char_end
    citation = replace(
        passage.citation,
        page=first.page,
        headings=first.headings,
        char_start=first.char_start,
        char_end=end,
        content_sha256=hashlib.sha256(content.encode()).digest(),
    )
    return replace(passage, content=content, citation=citation)
