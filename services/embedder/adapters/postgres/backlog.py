from collections.abc import Sequence
from typing import Final
from uuid import UUID

import structlog
from pgvector import Vector

from kbmesh.postgres import Pool, connection, fetch_one, transaction
from services.embedder.adapters.postgres.spaces import INDEX
from services.embedder.domain.chunks import PendingChunk
from services.embedder.domain.encoding import Vectors
from services.embedder.domain.spaces import Space

log = structlog.get_logger(__name__)

MAX_FAILURES: Final = 3
SEEDED_AT_ONCE: Final = 10_000
LEASE_S: Final = 300
"""A chunk that somebody has taken and not filled by then, is taken by another."""
INDEX_TIMEOUT_S: Final = 6 * 3600
INDEX_MEMORY: Final = "256MB"
"""For building the index: 100,000 vectors of 384 values take 22 s where they fit, and 157 s in 16 MB."""

# In order of id, so that a restart goes on where it stopped; in portions, because each row holds its chunk.
_SEED: Final = """
WITH portion AS (
    SELECT c.id FROM chunks c WHERE c.id > coalesce($2::uuid, '00000000-0000-0000-0000-000000000000')
    ORDER BY c.id LIMIT $3),
added AS (
    INSERT INTO space_backlog (space_id, chunk_id)
    SELECT $1, id FROM portion WHERE NOT EXISTS (SELECT FROM {table} v WHERE v.chunk_id = portion.id)
    ON CONFLICT DO NOTHING)
SELECT id FROM portion ORDER BY id DESC LIMIT 1
"""

_TAKE: Final = """
WITH taken AS (
    UPDATE space_backlog b SET leased_until = now() + make_interval(secs => $4)
    FROM (SELECT chunk_id FROM space_backlog
          WHERE space_id = $1 AND failures < $2 AND leased_until < now()
          ORDER BY chunk_id LIMIT $3 FOR UPDATE SKIP LOCKED) free
    WHERE b.space_id = $1 AND b.chunk_id = free.chunk_id
    RETURNING b.chunk_id)
SELECT c.id, c.content, c.header FROM taken JOIN chunks c ON c.id = taken.chunk_id
"""

_LOCK_SOURCES: Final = (
    """
    SELECT FROM documents WHERE id IN (SELECT document_id FROM chunks WHERE id = ANY ($1::uuid[]))
    ORDER BY id FOR SHARE
    """,
    """
    SELECT FROM generations WHERE kind IN (SELECT kind FROM chunks WHERE id = ANY ($1::uuid[]))
    ORDER BY kind FOR SHARE
    """,
    """
    SELECT FROM records r
    WHERE (r.kind, r.source_id) IN (
        SELECT kind, source_id FROM chunks WHERE id = ANY ($1::uuid[]) AND document_id IS NULL)
    ORDER BY r.kind, r.source_id FOR SHARE
    """,
)
"""Nothing goes live or away while its vectors are written."""

_FILL: Final = """
INSERT INTO {table} (chunk_id, kb_id, kind, live, embedding)
SELECT c.id, c.kb_id, c.kind, c.live, v.embedding
FROM unnest($1::uuid[], $2::vector[]) AS v (chunk_id, embedding) JOIN chunks c ON c.id = v.chunk_id
ON CONFLICT (chunk_id) DO NOTHING
"""

_DONE: Final = "DELETE FROM space_backlog WHERE space_id = $1 AND chunk_id = ANY ($2::uuid[])"

_PUT_BACK: Final = """
UPDATE space_backlog SET leased_until = '-infinity', failures = failures + $3
WHERE space_id = $1 AND chunk_id = ANY ($2::uuid[])
"""

# The lock is held to the end of the transaction: one process builds the index. It is not the lock of a row: who
# waits for one has a snapshot, and CREATE INDEX CONCURRENTLY waits for all of those.
_TO_INDEX: Final = """
SELECT true FROM embedding_spaces s
WHERE id = $1 AND seeded AND NOT indexed
  AND NOT EXISTS (SELECT FROM space_backlog b WHERE b.space_id = s.id AND b.failures < $2)
  AND pg_try_advisory_xact_lock($3, hashtext(s.id))
"""
_INDEX_LOCK: Final = 0x6B62_6D65
"""Namespace of the advisory locks of processes that build an index."""


class PostgresBacklog:
    """Port Backlog: chunks that a space lacks, and their way into it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def seed(self, space: Space) -> bool:
        async with transaction(self._pool) as conn:
            if await conn.fetchval("SELECT seeded FROM embedding_spaces WHERE id = $1", space.id) is not False:
                return True
            row = await fetch_one(
                conn, "SELECT seeded_to FROM embedding_spaces WHERE id = $1 FOR NO KEY UPDATE", space.id
            )
            last = await conn.fetchval(_SEED.format(table=space.table), space.id, row["seeded_to"], SEEDED_AT_ONCE)
            await conn.execute(
                "UPDATE embedding_spaces SET seeded_to = coalesce($2, seeded_to), seeded = $2 IS NULL"
                " WHERE id = $1",
                space.id,
                last,
            )
        return last is None

    async def take(self, space: Space, count: int) -> list[PendingChunk]:
        async with connection(self._pool) as conn:
            rows = await conn.fetch(_TAKE, space.id, MAX_FAILURES, count, LEASE_S)
        return [PendingChunk(**row) for row in rows]

    async def fill(self, space: Space, chunk_ids: Sequence[UUID], vectors: Vectors) -> None:
        async with transaction(self._pool) as conn:
            if not await conn.fetchval("SELECT true FROM embedding_spaces WHERE id = $1 FOR KEY SHARE", space.id):
                return
            for statement in _LOCK_SOURCES:
                await conn.execute(statement, chunk_ids)
            await conn.execute(_FILL.format(table=space.table), chunk_ids, [Vector(vector) for vector in vectors])
            await conn.execute(_DONE, space.id, chunk_ids)

    async def put_back(self, space: Space, chunk_ids: Sequence[UUID], *, failed: bool) -> None:
        async with connection(self._pool) as conn:
            await conn.execute(_PUT_BACK, space.id, chunk_ids, int(failed))

    async def build_index(self, space: Space) -> bool:
        async with transaction(self._pool) as claim:
            if not await claim.fetchval(_TO_INDEX, space.id, MAX_FAILURES, _INDEX_LOCK):
                return False
            # Ends the portal of that statement, too, and with it its snapshot.
            await claim.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            log.info("embedding_index_started", space=space.id)
            async with connection(self._pool) as conn:
                # Concurrently, that is without holding up uploads; what a process that died has left is not valid.
                await conn.execute(f"SET maintenance_work_mem = '{INDEX_MEMORY}'")
                await conn.execute(
                    f"DROP INDEX CONCURRENTLY IF EXISTS {space.table}_hnsw", timeout=INDEX_TIMEOUT_S
                )
                await conn.execute(
                    INDEX.format(how="CONCURRENTLY", table=space.table, dimensions=space.dimensions),
                    timeout=INDEX_TIMEOUT_S,
                )
            await claim.execute("UPDATE embedding_spaces SET indexed = true WHERE id = $1", space.id)
        log.info("embedding_index_built", space=space.id)
        return True
