from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from services.search.domain.assembly import ResolvedSkills
from services.search.domain.context import ContextPassage, Reach
from services.search.domain.passages import Passage
from services.search.domain.ranking import Candidate
from services.search.domain.retrieval import QueryVector, Scan, Space, Visibility


class QueryEmbedder(Protocol):
    async def embed(self, text: str, space: Space, *, timeout_s: float) -> QueryVector:
        """The vector to search `space` by.

        Raises:
            SpaceOutdated: the embedding service does not encode for `space`.
            VectorLegSkipped: the embedding service is down, busy, too slow, or refuses.
        """
        ...


class PassageStore(Protocol):
    """Live document chunks. Every method with `visible` sees only what it admits.

    All raise Unavailable while the database does not answer.
    """

    async def active_space(self, *, cached: bool = True) -> Space | None:
        """The space that is searched, known for a few seconds if `cached`; None before anything was embedded."""
        ...

    async def channel_bases(self, visible: Visibility, channel_id: str) -> frozenset[UUID] | None:
        """Those that the channels of that id name, of the caller and of the caller's teams; None without any.

        Whether the caller may see the bases is another matter.
        """
        ...

    async def estimate_all_chunks(self) -> int:
        """Of all callers and kinds, as the last ANALYZE found, known for a minute; 0 before the first."""
        ...

    async def count_chunks(self, visible: Visibility, *, at_most: int) -> int: ...

    async def by_vector(
        self, vector: QueryVector, space: Space, visible: Visibility, scan: Scan
    ) -> list[Candidate]:
        """The nearest chunks by cosine similarity. Raises SpaceOutdated when the space is gone."""
        ...

    async def by_keywords(self, text: str, visible: Visibility, scan: Scan) -> list[Candidate]:
        """The chunks that share the weightiest words with `text`; none for a text without words."""
        ...

    async def passages(self, chunk_ids: Sequence[UUID], visible: Visibility, *, around: int = 0) -> list[Passage]:
        """Those of `chunk_ids` that are still live, in any order, as of one moment, with up to `around` chunks on
        each side among their parts."""
        ...


class ContextStore(PassageStore, Protocol):
    """Live chunks of every kind: all that a Reach admits, where `visible` is one."""

    async def context_passages(self, chunk_ids: Sequence[UUID], reach: Reach) -> list[ContextPassage]:
        """As `passages`."""
        ...


class RecordSource(Protocol):
    """Live records, which every caller sees. Both raise Unavailable while the database does not answer."""

    async def newest(
        self, kinds: Collection[str], *, persona: str | None, limit: int
    ) -> list[tuple[ContextPassage, datetime | None]]:
        """The beginning of each, and until when it holds. First those that name `persona`, then the newest."""
        ...

    async def counts(self, kinds: Collection[str]) -> Mapping[str, int]:
        """How many there are of each kind; those without any are not in it."""
        ...


class SkillSource(Protocol):
    async def resolve(
        self, intent: str, question: str, *, max_overlay_chars: int, max_context_chars: int, timeout_s: float
    ) -> ResolvedSkills:
        """Raises KbmeshError, of whatever kind, when the skills service does not answer, or refuses."""
        ...
