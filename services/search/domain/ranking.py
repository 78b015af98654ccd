"""Fuses the two legs into one order in which relevance and provenance both count."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from kbmesh.provenance import FRESH, Tier, freshness
from services.search.domain.retrieval import CANDIDATES

OUT_OF_SIGHT: Final = 0.8
"""A passage that a leg with CANDIDATES does not have counts as this share of the last that it has, not as nothing:
all that is known is that it is no nearer. Between 0.7 and 0.9 nDCG@10 moves by 0.001."""
SHARPNESS: Final = 2
"""Power of relevance. It changes no order but for tiers: were all right answers of SciFact benchmarks (0.7) among
customer facts (1.0), 0.50 of the questions would have one in the first five at 1, 0.70 at 2 and 0.73 at 3. The
higher, the less often does the customer fact come first where several tiers answer and it is worded less aptly."""

MIN_COSINE: Final = 0.2
"""Below it two texts have nothing to do with one another, however poor the rest is."""
MIN_COSINE_OF_BEST: Final = 0.5
MIN_KEYWORDS_OF_BEST: Final = 0.25
"""What is further behind the best of both legs is no answer, whatever its tier."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk that one leg found; `similarity` is the cosine there, or the keyword score: higher is nearer."""

    chunk_id: UUID
    similarity: float
    tier: Tier
    valid_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """`value` = relevance x tier_weight x freshness, each in [0, 1]; ranks from 1, None: not in that leg."""

    value: float
    relevance: float
    tier_weight: float
    freshness: float
    vector_rank: int | None
    keyword_rank: int | None
    reason: str
    vector_similarity: float | None = None
    keyword_similarity: float | None = None
    """As raw as the leg gave it; None as for the ranks."""


@dataclass(frozen=True, slots=True)
class Ranked:
    chunk_id: UUID
    score: Score


@dataclass(frozen=True, slots=True)
class _Placed:
    rank: int
    similarity: float
    share: float
    """Of the similarity of the best in the leg, in [0, 1]."""


class _Leg:
    """What one leg found, nearest first. `floor` is what makes an answer of a passage."""

    def __init__(self, candidates: list[Candidate], *, at_least: float, of_best: float) -> None:
        nearest = sorted(candidates, key=lambda candidate: (-candidate.similarity, candidate.chunk_id))
        best = nearest[0].similarity if nearest else 0.0
        self._floor = max(at_least, of_best * best)
        self.placed = {
            candidate.chunk_id: _Placed(
                position, candidate.similarity, max(candidate.similarity, 0.0) / best if best > 0 else 0.0
            )
            for position, candidate in enumerate(nearest, start=1)
        }
        full = len(nearest) >= CANDIDATES
        self._out_of_sight = OUT_OF_SIGHT * self.placed[nearest[-1].chunk_id].share if full else 0.0

    def answers(self) -> set[UUID]:
        return {
            chunk_id
            for chunk_id, placed in self.placed.items()
            if placed.similarity >= self._floor and placed.share
        }

    def share(self, chunk_id: UUID) -> float:
        return placed.share if (placed := self.placed.get(chunk_id)) else self._out_of_sight


def rank(
    vector: Iterable[Candidate], keyword: Iterable[Candidate], *, now: datetime, legs: int = 2
) -> list[Ranked]:
    """Every chunk that is near enough in a leg, best first; ties break on the id. `legs`: how many were asked.

    Relevance is the mean over the legs of the share of the leg's best similarity (the convex combination of Bruch,
    Gai and Ingber 2023, with the least similarity taken as 0), squared. Decision 6 has what was measured.
    """
    vector, keyword = list(vector), list(keyword)
    by_vector = _Leg(vector, at_least=MIN_COSINE, of_best=MIN_COSINE_OF_BEST)
    by_keyword = _Leg(keyword, at_least=0, of_best=MIN_KEYWORDS_OF_BEST)
    found = {candidate.chunk_id: candidate for candidate in (*vector, *keyword)}
    ranked = [
        Ranked(chunk_id, _score(found[chunk_id], by_vector, by_keyword, now, legs))
        for chunk_id in by_vector.answers() | by_keyword.answers()
    ]
    return sorted(ranked, key=lambda one: (-one.score.value, one.chunk_id))


def _score(candidate: Candidate, by_vector: _Leg, by_keyword: _Leg, now: datetime, legs: int) -> Score:
    chunk_id = candidate.chunk_id
    vector, keyword = by_vector.placed.get(chunk_id), by_keyword.placed.get(chunk_id)
    relevance = ((by_vector.share(chunk_id) + by_keyword.share(chunk_id)) / legs) ** SHARPNESS
    fresh = freshness(candidate.valid_until, now)
    weight = candidate.tier.weight
    ranks = [
        f"{leg} rank {placed.rank}"
        for leg, placed in (("vector", vector), ("keyword", keyword))
        if placed is not None
    ]
    return Score(
        value=relevance * weight * fresh,
        relevance=relevance,
        tier_weight=weight,
        freshness=fresh,
        vector_rank=None if vector is None else vector.rank,
        keyword_rank=None if keyword is None else keyword.rank,
        vector_similarity=None if vector is None else vector.similarity,
        keyword_similarity=None if keyword is None else keyword.similarity,
        reason=(
            f"relevance {relevance:.2f} ({', '.join(ranks)}) x {candidate.tier} {weight:.2f}"
            f" x {'fresh' if fresh == FRESH else 'past its validity'} {fresh:.2f}"
        ),
    )
