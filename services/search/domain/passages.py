from dataclasses import dataclass
from uuid import UUID

from kbmesh.provenance import Category, Tier
from services.search.domain.ranking import Score


@dataclass(frozen=True, slots=True)
class Citation:
    """Where a passage stands: page from 1 or None, headings outermost first, half-open span in code points."""

    page: int | None
    headings: tuple[str, ...]
    char_start: int
    char_end: int
    content_sha256: bytes


@dataclass(frozen=True, slots=True)
class Part:
    """A chunk of a passage, the `ordinal`th of its document; the rest as in Citation."""

    ordinal: int
    content: str
    page: int | None
    headings: tuple[str, ...]
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class Passage:
    chunk_id: UUID
    document_id: UUID
    kb_id: UUID
    filename: str
    category: Category
    content: str
    tier: Tier
    citation: Citation
    parts: tuple[Part, ...] = ()
    """The chunk itself and those around it that were asked for, in the order of the document; none were: empty."""
    duplicates: tuple[UUID, ...] = ()
    """Chunks that were left out of the answer since they say the same."""
    conflicts_with: tuple[UUID, ...] = ()
    """Chunks in the answer, of other tiers, that give other numbers for the same subject."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Passages with their scores, best first; `degraded_reason` is empty when both legs answered."""

    passages: tuple[tuple[Passage, Score], ...]
    degraded_reason: str = ""
