"""What the search service is asked, and what it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from kbmesh.provenance import Category, Tier
from services.ingest.domain.metadata import MetadataValue


class Mode(StrEnum):
    """Which legs answer."""

    HYBRID = "hybrid"
    VECTOR = "vector"
    KEYWORD = "keyword"


@dataclass(frozen=True, slots=True)
class Filters:
    """What must hold of a document, all of it; None or empty: anything."""

    category: Category | None = None
    document_ids: Sequence[UUID] = ()
    content_type: str | None = None
    metadata: Mapping[str, MetadataValue | Mapping[str, str | float]] = field(default_factory=dict)
    """An object is a range, {"gte": 1, "lte": 2}; all else has to be equal."""
    created_after: datetime | None = None
    created_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """`kb_ids` empty: all knowledge bases that the caller can see, or those of the channel."""

    query: str
    kb_ids: Sequence[UUID] = ()
    limit: int = 5
    channel_id: str | None = None
    mode: Mode = Mode.HYBRID
    filters: Filters | None = None
    min_score: float = 0.0
    explain: bool = False
    expand: int = 0
    """Chunks on each side that a passage is merged with, 0 to 3."""


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
    duplicates: tuple[str, ...]
    """Chunks that it stands for, since they say the same."""
    conflicts_with: tuple[str, ...]
    """Chunks in the answer that give other numbers for the same subject."""


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """`degraded`: one of the two legs could not answer, for the reason beside it."""

    passages: tuple[Passage, ...]
    degraded: bool
    degraded_reason: str
