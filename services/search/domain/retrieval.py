"""What the two legs look in, and how."""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final
from uuid import UUID

from kbmesh.errors import KbmeshError
from services.search.domain.filters import Filters

CANDIDATES: Final = 50
"""Per leg; ranking sees no more."""

EXACT_UP_TO: Final = 10_000
"""Chunks, however many there are: comparing them all takes 14 ms and misses nothing."""

EXACT_SHARE: Final = 500
"""Chunks, of the cost of a row that an exact scan compares and of one that the index gives (decision 13)."""


@dataclass(frozen=True, slots=True)
class Visibility:
    """Whose knowledge bases may contribute: those of `sub` and of `teams`, only `kb_ids` of them unless None, and
    of their documents those that `filters` let through."""

    sub: UUID
    teams: frozenset[UUID] = frozenset()
    kb_ids: frozenset[UUID] | None = None
    filters: Filters | None = None


@dataclass(frozen=True, slots=True)
class Space:
    """The embedding space that is searched, and the table of its vectors."""

    id: str
    table: str
    dimensions: int


class Scan(Enum):
    """How a leg finds its candidates: in all that is visible, or through an index over everybody's chunks."""

    EXACT = "exact"
    INDEX = "index"


def exact_up_to(all_chunks: int) -> int:
    """How many visible ones of `all_chunks` are looked through.

    That takes as long as they are many, and misses nothing. The index gives everybody's chunks and goes on until
    enough are visible: that takes longer, and finds less, the smaller their share. Both cost the same where
    visible² = EXACT_SHARE × all.
    """
    return max(EXACT_UP_TO, math.isqrt(EXACT_SHARE * all_chunks))


def choose_scan(visible_chunks: int, all_chunks: int) -> Scan:
    return Scan.EXACT if visible_chunks <= exact_up_to(all_chunks) else Scan.INDEX


@dataclass(frozen=True, slots=True)
class QueryVector:
    """The question as the embedding service encoded it, and the space in which it may be compared."""

    values: tuple[float, ...]
    space_id: str


class VectorLegSkipped(KbmeshError):
    """There is no vector to search by, or nothing to compare it with; keywords can still answer."""

    default_code = "vector_leg_skipped"


class SpaceOutdated(VectorLegSkipped):
    """The space is not searched any more, or not by this embedder; another one may be the active one by now."""


def check_comparable(vector: QueryVector, space: Space) -> None:
    """
    Raises:
        VectorLegSkipped: another space or dimension, or values without a direction.
    """
    if vector.space_id != space.id or len(vector.values) != space.dimensions:
        raise VectorLegSkipped(
            f"the embedding service encoded for {vector.space_id!r} when asked for {space.id!r}",
            code="space_mismatch",
        )
    if not 0 < sum(value * value for value in vector.values) < math.inf:
        raise VectorLegSkipped("the embedding service gave a zero or non-finite vector", code="bad_vector")
