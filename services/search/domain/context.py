"""What may be asked for over every kind of source, and what is answered."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from kbmesh.errors import InvalidArgument
from kbmesh.provenance import KINDS, SCOPES, Tier, label_of
from services.search.domain.query import parse_query
from services.search.domain.ranking import Candidate, Ranked, Score, rank
from services.search.domain.retrieval import Visibility

DEFAULT_TOP_K: Final = 10
DEFAULT_MIN_SCORE: Final = 0.4
DEFAULT_MAX_CHARS: Final = 8_000
MIN_MAX_CHARS: Final = 2_000
MAX_MAX_CHARS: Final = 100_000
MAX_NAMES: Final = 50
"""Of scopes, and of kinds."""
MAX_ATTRIBUTES: Final = 16
MAX_ATTRIBUTE_CHARS: Final = 1_000

Attribute = str | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach(Visibility):
    """Sources of `kinds` whose metadata has all of `attributes`: of documents those that Visibility says, and of
    records, which belong to no knowledge base, all."""

    kinds: frozenset[str]
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class ContextQuery:
    """A request that was checked. `max_chars` in code points, of the text for a prompt."""

    text: str
    kinds: frozenset[str]
    attributes: Mapping[str, Attribute]
    top_k: int = DEFAULT_TOP_K
    min_score: float = DEFAULT_MIN_SCORE
    by_provenance: bool = True
    max_chars: int = DEFAULT_MAX_CHARS


@dataclass(frozen=True, slots=True)
class ContextPassage:
    """`title` is the file name of a document and the title of a record, `page` counts from 1, `version` is that
    of a learned skill."""

    chunk_id: UUID
    kind: str
    source_id: str
    title: str
    content: str
    tier: Tier
    kb_id: UUID | None = None
    page: int | None = None
    headings: tuple[str, ...] = ()
    version: int | None = None
    duplicates: tuple[UUID, ...] = ()
    conflicts_with: tuple[UUID, ...] = ()
    """Both as in Passage."""

    @property
    def label(self) -> str:
        return label_of(self.kind, self.title, self.version)


@dataclass(frozen=True, slots=True)
class Formatted:
    """A text for a prompt, how many passages it has no room for, and whether the last one in it was cut."""

    text: str
    dropped: int = 0
    shortened: bool = False


@dataclass(frozen=True, slots=True)
class ContextAnswer:
    """Passages with their scores, best first; `degraded_reason` is empty when both legs answered."""

    passages: tuple[tuple[ContextPassage, Score], ...]
    formatted: Formatted
    degraded_reason: str = ""


def order(
    nearest: Iterable[Candidate], keyword: Iterable[Candidate], query: ContextQuery, *, now: datetime
) -> list[Ranked]:
    """What clears `min_score`, best first: by cosine similarity or, found by keywords alone, by the share of the
    best score in that leg. Cosines say nothing of identifiers, which keywords find."""
    keyword = list(keyword)
    ranked = rank((one for one in nearest if one.similarity >= query.min_score), keyword, now=now)
    floor = query.min_score * max((one.similarity for one in keyword), default=0.0)
    kept = [
        one
        for one in ranked
        if one.score.vector_rank is not None or (one.score.keyword_similarity or 0.0) >= floor
    ]
    return kept if query.by_provenance else _by_relevance(kept)


def _by_relevance(ranked: Iterable[Ranked]) -> list[Ranked]:
    plain = [
        replace(one, score=replace(one.score, value=relevance, reason=f"relevance {relevance:.2f} alone"))
        for one in ranked
        for relevance in (one.score.relevance,)
    ]
    return sorted(plain, key=lambda one: (-one.score.value, one.chunk_id))


def parse_context_query(
    text: str,
    *,
    scopes: Sequence[str] = (),
    kinds: Sequence[str] = (),
    metadata: Mapping[str, object] | None = None,
    run_id: str | None = None,
    scan_id: str | None = None,
    top_k: int = DEFAULT_TOP_K,
    min_score: float = DEFAULT_MIN_SCORE,
    by_provenance: bool = True,
    max_chars: int = DEFAULT_MAX_CHARS,
) -> ContextQuery:
    """
    Raises:
        InvalidArgument: as `parse_query`; unknown_scope, unknown_kind, too_many_kinds, invalid_metadata_filter,
            min_score_out_of_range or max_chars_out_of_range.
    """
    query = parse_query(text, limit=top_k, min_score=min_score)
    if not MIN_MAX_CHARS <= max_chars <= MAX_MAX_CHARS:
        raise InvalidArgument(
            f"max_chars is {MIN_MAX_CHARS} to {MAX_MAX_CHARS}, not {max_chars}", code="max_chars_out_of_range"
        )
    return ContextQuery(
        query.text,
        _kinds(scopes, kinds),
        _attributes(metadata or {}, {"run_id": run_id, "scan_id": scan_id}),
        query.limit,
        query.min_score,
        by_provenance,
        max_chars,
    )


def _kinds(scopes: Sequence[str], kinds: Sequence[str]) -> frozenset[str]:
    if len(scopes) > MAX_NAMES or len(kinds) > MAX_NAMES:
        raise InvalidArgument(f"name at most {MAX_NAMES} scopes and kinds", code="too_many_kinds")
    for scope in scopes:
        if scope not in SCOPES:
            raise InvalidArgument(f"unknown scope {scope[:64]!r}", code="unknown_scope")
    for kind in kinds:
        if kind not in KINDS:
            raise InvalidArgument(f"unknown kind {kind[:64]!r}", code="unknown_kind")
    return frozenset(kinds).union(*(SCOPES[scope] for scope in scopes)) or frozenset(KINDS)


def _attributes(metadata: Mapping[str, object], ids: Mapping[str, str | None]) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {key: value for key, value in ids.items() if value is not None}
    if twice := attributes.keys() & metadata.keys():
        raise _refused(f"names {sorted(twice)[0]} again")
    for key, value in metadata.items():
        if not isinstance(value, str | float | bool) or (isinstance(value, float) and not math.isfinite(value)):
            raise _refused("holds texts, finite numbers, true or false, and nothing else")
        attributes[key] = value
    if len(attributes) > MAX_ATTRIBUTES:
        raise _refused(f"has at most {MAX_ATTRIBUTES} values")
    for text in (*attributes.keys(), *(value for value in attributes.values() if isinstance(value, str))):
        if len(text) > MAX_ATTRIBUTE_CHARS or "\x00" in text:
            raise _refused(f"has names and texts of at most {MAX_ATTRIBUTE_CHARS} characters, without NUL")
    return attributes


def _refused(reason: str) -> InvalidArgument:
    return InvalidArgument(f"the metadata filter {reason}", code="invalid_metadata_filter")
