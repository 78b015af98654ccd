"""The shadow check: how two embedding spaces answer the same queries."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from statistics import fmean
from typing import Final

from services.embedder.domain.chunks import Found

DEPTH: Final = 10
"""Answers of a query that are compared: recall at ten is what model cards and benchmarks of retrieval give."""
MAX_SENTENCE_CHARS: Final = 300
MIN_RECALL_SHARE: Final = 0.9
"""Of the active space's recall. Less of a loss may be chance: a check without a file has fifty queries, and two of
them that find their chunk or do not are four points of recall."""
MIN_OVERLAP: Final = 0.1
"""Without judgements overlap is all there is, and it says little: all-MiniLM-L6-v2 cut from 384 dimensions to 128
keeps 0.97 of its recall at an overlap of 0.56; cut to 8 it keeps 0.23 at 0.07 (SciFact: 200 claims, 1,500 texts
of up to 256 tokens)."""

_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n\s*\n")


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    query: str
    relevant: frozenset[str] = frozenset()
    """Ids of the chunks or sources that answer it; empty where nobody has judged."""


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """Over the first DEPTH answers of each query."""

    queries: int
    overlap: float
    """Mean share of the active space's answers that the candidate gives, too; 1 with nothing to compare."""
    judged: int
    recall_active: float
    """Mean share of what is relevant that is found, over the judged queries; 0 without any."""
    recall_candidate: float

    @property
    def refusal(self) -> str | None:
        """Why the candidate should not replace the active space; None if nothing speaks against it."""
        if self.judged:
            if self.recall_candidate < MIN_RECALL_SHARE * self.recall_active:
                return (
                    f"it finds {self.recall_candidate:.3f} of what is relevant, the active space"
                    f" {self.recall_active:.3f}"
                )
        elif self.overlap < MIN_OVERLAP:
            return f"it gives {self.overlap:.3f} of the active space's answers, and no query has judgements"
        return None


def compare(
    queries: Sequence[JudgedQuery], active: Sequence[Sequence[Found]], candidate: Sequence[Sequence[Found]]
) -> ShadowReport:
    """Of the answers of two spaces, in the order of `queries`, best first."""
    judged = [position for position, query in enumerate(queries) if query.relevant]

    def recall(answers: Sequence[Sequence[Found]]) -> float:
        return _mean([_recall(queries[position].relevant, answers[position]) for position in judged])

    return ShadowReport(
        queries=len(queries),
        overlap=_mean(list(starmap(_overlap, zip(active, candidate, strict=True))), of_none=1.0),
        judged=len(judged),
        recall_active=recall(active),
        recall_candidate=recall(candidate),
    )


def first_sentence(text: str) -> str:
    """What a query about `text` might say; empty for a blank text."""
    sentence = _SENTENCE_END.split(text.strip(), maxsplit=1)[0]
    return " ".join(sentence.split())[:MAX_SENTENCE_CHARS]


def _overlap(active: Sequence[Found], candidate: Sequence[Found]) -> float:
    ours = {found.chunk_id for found in active}
    return len(ours & {found.chunk_id for found in candidate}) / len(ours) if ours else 1.0


def _recall(relevant: frozenset[str], answers: Sequence[Found]) -> float:
    found = {str(answer.chunk_id) for answer in answers} | {answer.source_id for answer in answers}
    return len(relevant & found) / len(relevant)


def _mean(shares: Sequence[float], *, of_none: float = 0.0) -> float:
    return fmean(shares) if shares else of_none
