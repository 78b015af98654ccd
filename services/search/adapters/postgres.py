import json
import math
import time
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg
from pgvector import Vector

from kbmesh.postgres import Pool, connection, transaction
from kbmesh.provenance import Category, Tier
from services.search.adapters import statements
from services.search.adapters.filters import narrowed
from services.search.adapters.reach import CONTEXT_PASSAGES, reaching
from services.search.domain.context import ContextPassage, Reach
from services.search.domain.passages import Citation, Part, Passage
from services.search.domain.ranking import Candidate
from services.search.domain.retrieval import CANDIDATES, QueryVector, Scan, Space, SpaceOutdated, Visibility

SERVER_SETTINGS: Final = {
    "application_name": "kbmesh-search",
    # Bases differ in size by orders of magnitude: one plan for all is ten times slower on the large ones.
    "plan_cache_mode": "force_custom_plan",
    "jit": "off",
    # Every statement has an index for its rows. The planner cannot know how many of them the caller sees, and
    # would read whole tables where there are few bases.
    "enable_seqscan": "off",
    # Off by default: a filtered scan then gives up after ef_search rows, whether they are visible or not.
    "hnsw.iterative_scan": "relaxed_order",
    "hnsw.ef_search": "200",
}
"""What every connection of the pool must be opened with."""

FROM_INDEX: Final = 100
"""Rows taken from HNSW for CANDIDATES kept: recall 0.997 instead of 0.91 when a tenth of 100,000 is visible."""
MATCHES_SOUGHT: Final = 2_000
MATCHES_RANKED: Final = 5_000
MATCHES_COUNTED: Final = 1_000
"""Of one word, in everybody's bases; where 100,000 chunks were analyzed, no word that is counted has more."""
SPACE_CACHED_S: Final = 5.0
ALL_CHUNKS_CACHED_S: Final = 60.0


class PostgresPassages:
    """Port PassageStore on a pool that was opened with vectors and SERVER_SETTINGS."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._space: Space | None = None
        self._space_read_at = 0.0
        self._all_chunks = 0
        self._all_chunks_read_at = -math.inf

    async def active_space(self, *, cached: bool = True) -> Space | None:
        if not cached or self._space is None or time.monotonic() - self._space_read_at > SPACE_CACHED_S:
            async with connection(self._pool) as conn:
                row = await conn.fetchrow(statements.ACTIVE_SPACE)
            self._space = None if row is None else Space(*row.values())
            self._space_read_at = time.monotonic()
        return self._space

    async def channel_bases(self, visible: Visibility, channel_id: str) -> frozenset[UUID] | None:
        async with connection(self._pool) as conn:
            rows = await conn.fetch(statements.CHANNELS, visible.sub, list(visible.teams), channel_id)
        if not rows:
            return None
        return frozenset(UUID(kb_id) for row in rows for kb_id in json.loads(row["settings"])["kb_ids"])

    async def estimate_all_chunks(self) -> int:
        if time.monotonic() - self._all_chunks_read_at > ALL_CHUNKS_CACHED_S:
            async with connection(self._pool) as conn:
                self._all_chunks = await conn.fetchval(statements.ALL_CHUNKS)
            self._all_chunks_read_at = time.monotonic()
        return self._all_chunks

    async def count_chunks(self, visible: Visibility, *, at_most: int) -> int:
        async with connection(self._pool) as conn:
            count: int = await conn.fetchval(
                *narrowed(visible, Scan.EXACT, statements.COUNT_CHUNKS, *_caller(visible), at_most)
            )
        return count

    async def by_vector(
        self, vector: QueryVector, space: Space, visible: Visibility, scan: Scan
    ) -> list[Candidate]:
        arguments = (*_caller(visible), Vector(list(vector.values)), CANDIDATES)
        names = {"table": space.table, "dimensions": space.dimensions}
        try:
            if scan is Scan.EXACT:
                async with connection(self._pool) as conn:
                    statement = statements.NEAREST_EXACT.format_map(names)
                    rows = await conn.fetch(*narrowed(visible, scan, statement, *arguments))
            else:
                async with transaction(self._pool, readonly=True) as conn:
                    await conn.execute(statements.FORCE_INDEX)
                    statement = statements.NEAREST_BY_INDEX.format_map(names)
                    rows = await conn.fetch(*narrowed(visible, scan, statement, *arguments, FROM_INDEX))
        except asyncpg.UndefinedTableError as error:
            raise _gone(space) from error
        return [_candidate(row) for row in rows]

    async def by_keywords(self, text: str, visible: Visibility, scan: Scan) -> list[Candidate]:
        caller = _caller(visible)
        async with connection(self._pool) as conn:
            asked = (*caller, text, MATCHES_SOUGHT, MATCHES_COUNTED)
            [question] = await conn.fetch(*narrowed(visible, scan, statements.QUESTION, *asked))
            if question["weights"] is None:
                return []
            statement, arguments = statements.BY_KEYWORDS_EXACT, [*caller, question["weights"], CANDIDATES]
            if scan is Scan.INDEX:
                statement = statements.BY_KEYWORDS_BY_INDEX
                arguments += [question["rare"], MATCHES_RANKED, question["common"], MATCHES_SOUGHT]
            rows = await conn.fetch(*narrowed(visible, scan, statement, *arguments))
        return [_candidate(row) for row in rows]

    async def passages(self, chunk_ids: Sequence[UUID], visible: Visibility, *, around: int = 0) -> list[Passage]:
        if not chunk_ids:
            return []
        async with connection(self._pool) as conn:
            rows = await conn.fetch(statements.PASSAGES, *_caller(visible), chunk_ids, around)
        return [_passage(row) for row in rows]

    async def context_passages(self, chunk_ids: Sequence[UUID], reach: Reach) -> list[ContextPassage]:
        if not chunk_ids:
            return []
        async with connection(self._pool) as conn:
            rows = await conn.fetch(
                *reaching(reach, Scan.EXACT, CONTEXT_PASSAGES, *_caller(reach), list(chunk_ids))
            )
        return [context_passage(row) for row in rows]


def _caller(visible: Visibility) -> tuple[UUID, list[UUID], list[UUID] | None]:
    return visible.sub, list(visible.teams), None if visible.kb_ids is None else list(visible.kb_ids)


def _gone(space: Space) -> SpaceOutdated:
    return SpaceOutdated(f"the vectors of space {space.id!r} are gone", code="space_gone")


def _candidate(row: asyncpg.Record) -> Candidate:
    return Candidate(row["id"], row["similarity"], Tier(row["tier"]), row["valid_until"])


def _passage(row: asyncpg.Record) -> Passage:
    metadata: dict[str, Any] = json.loads(row["metadata"])
    return Passage(
        chunk_id=row["id"],
        document_id=row["document_id"],
        kb_id=row["kb_id"],
        filename=row["filename"],
        category=Category(row["category"]),
        content=row["content"],
        tier=Tier(row["tier"]),
        citation=Citation(
            page=metadata["page"],
            headings=tuple(metadata["headings"]),
            char_start=metadata["char_start"],
            char_end=metadata["char_end"],
            content_sha256=row["content_sha256"],
        ),
        parts=tuple(_part(*part) for part in json.loads(row["parts"] or "[]")),
    )


def _part(ordinal: int, content: str, metadata: dict[str, Any]) -> Part:
    return Part(
        ordinal,
        content,
        metadata["page"],
        tuple(metadata["headings"]),
        metadata["char_start"],
        metadata["char_end"],
    )


def context_passage(row: asyncpg.Record) -> ContextPassage:
    metadata: dict[str, Any] = json.loads(row["metadata"])
    version = metadata.get("attributes", {}).get("version")
    return ContextPassage(
        chunk_id=row["id"],
        kind=row["kind"],
        source_id=row["source_id"],
        title=row["filename"] or metadata.get("title", ""),
        content=row["content"],
        tier=Tier(row["tier"]),
        kb_id=row["kb_id"],
        page=metadata.get("page"),
        headings=tuple(metadata.get("headings", ())),
        version=int(version) if isinstance(version, int | float) else None,
    )
