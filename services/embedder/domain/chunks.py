from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID


class Source(NamedTuple):
    """One revision of a document or record; the key of the version fence."""

    kind: str
    source_id: str
    revision: int


@dataclass(frozen=True, slots=True)
class ReadyChunks:
    """Chunks of one source that wait for their vectors."""

    source: Source
    chunk_ids: tuple[UUID, ...]
    recompute: bool = False
    """The model computes their vectors, whatever older revisions have."""


@dataclass(frozen=True, slots=True)
class PendingChunk:
    """A chunk of the newest revision that has no vector yet."""

    id: UUID
    content: str
    header: str = ""

    @property
    def text(self) -> str:
        """What the model reads."""
        return f"{self.header}\n\n{self.content}" if self.header else self.content


@dataclass(frozen=True, slots=True)
class Stored:
    """What one transaction changed."""

    vectors: int
    documents_ready: int
    reused: int = 0
    """Vectors of an older revision's chunks with the same text."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """What became of a batch."""

    stored: Stored
    truncated: int
    """Texts of which the model read the beginning only."""
    bad: Mapping[UUID, Exception]
    """Chunks that the model cannot encode, each for a reason of its own."""


@dataclass(frozen=True, slots=True)
class Found:
    """A chunk that a search over all knowledge bases answers with."""

    chunk_id: UUID
    source_id: str
