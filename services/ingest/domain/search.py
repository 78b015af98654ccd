"""What the search service answers."""

from dataclasses import dataclass

from kbmesh.provenance import Tier


@dataclass(frozen=True, slots=True)
class Citation:
    """Where a passage stands; the span is half-open, in Unicode code points of the extracted text."""

    page: int | None
    headings: tuple[str, ...]
    char_start: int
    char_end: int
    content_sha256: str


@dataclass(frozen=True, slots=True)
class Score:
    """value = relevance x tier_weight x freshness; ranks from 1, None where a leg did not find the passage."""

    value: float
    relevance: float
    tier_weight: float
    freshness: float
    vector_rank: int | None
    keyword_rank: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """`rank` in the answer, from 1; raw similarities, None where a leg did not find the passage."""

    rank: int
    vector_similarity: float | None
    keyword_similarity: float | None


@dataclass(frozen=True, slots=True)
class Passage:
    chunk_id: str
    document_id: str
    kb_id: str
    filename: str
    category: str
    content: str
    label: str
    tier: Tier | None
    citation: Citation
    score: Score
    explanation: Explanation | None
    """None unless the question asked for it."""


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """`degraded`: one of the two legs could not answer, for the reason beside it."""

    passages: tuple[Passage, ...]
    degraded: bool
    degraded_reason: str
