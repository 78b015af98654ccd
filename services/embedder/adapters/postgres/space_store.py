import asyncio
from typing import Final
from uuid import UUID

import numpy as np
import structlog
from asyncpg import LockNotAvailableError, Record
from pgvector import Vector

from kbmesh.errors import Conflict, NotFound, PreconditionFailed, Unavailable
from kbmesh.postgres import Connection, Pool, connection, transaction
from services.embedder.adapters.postgres.backlog import MAX_FAILURES
from services.embedder.adapters.postgres.spaces import SPACES_LOCK, PostgresSpaces, create_table
from services.embedder.domain.chunks import Found
from services.embedder.domain.encoding import Vectors
from services.embedder.domain.spaces import Space, SpaceState, SpaceStatus

log = structlog.get_logger(__name__)

CATCH_UP_CHUNKS: Final = 2_000
"""A space that lacks more is not waited for."""
CATCH_UP_TIMEOUT_S: Final = 20.0
CATCH_UP_POLL_S: Final = 0.05
COUNT_TIMEOUT_S: Final = 60.0
DROP_TRIES: Final = 10

_STATES: Final = """
SELECT s.id, s.model, s.dimensions, s.status, s.seeded, s.indexed, s.created_at, s.activated_at, s.retired_at,
       coalesce(b.waiting, 0) AS waiting, coalesce(b.failed, 0) AS failed
FROM embedding_spaces s
LEFT JOIN (SELECT space_id, count(*) FILTER (WHERE failures < $1) AS waiting,
                  count(*) FILTER (WHERE failures >= $1) AS failed
           FROM space_backlog GROUP BY space_id) b ON b.space_id = s.id
WHERE $2::text IS NULL OR s.id = $2
ORDER BY s.status = 'active' DESC, s.created_at DESC, s.id
"""

# What it has not been seeded with yet waits, too.
_UNSEEDED: Final = (
    "SELECT count(*) FROM chunks c JOIN embedding_spaces s ON s.id = $1 AND NOT s.seeded"
    " WHERE s.seeded_to IS NULL OR c.id > s.seeded_to"
)

_WAITING: Final = "SELECT count(*) FROM space_backlog WHERE space_id = $1 AND failures < $2"

# Only what would be lost: the active space may lack the same chunk.
_LOST: Final = """
SELECT count(*) FROM space_backlog b JOIN {active} v USING (chunk_id) WHERE b.space_id = $1 AND b.failures >= $2
"""

_RETIRE: Final = "UPDATE embedding_spaces SET status = 'retired', retired_at = now() WHERE status = 'active'"
_ACTIVATE: Final = "UPDATE embedding_spaces SET status = 'active', activated_at = now() WHERE id = $1"

_NEAREST: Final = """
SELECT n.chunk_id, c.source_id
FROM (SELECT chunk_id, embedding::halfvec({dimensions}) <=> $1::vector::halfvec({dimensions}) AS distance
      FROM {table} WHERE live ORDER BY distance LIMIT $2) n
JOIN chunks c ON c.id = n.chunk_id
ORDER BY n.distance, n.chunk_id
"""


class PostgresSpaceStore:
    """Port SpaceStore. `spaces` is what this process knows of them, and is told when that changes."""

    def __init__(self, pool: Pool, spaces: PostgresSpaces) -> None:
        self._pool = pool
        self._spaces = spaces

    async def states(self) -> list[SpaceState]:
        async with connection(self._pool) as conn:
            return await _states(conn)

    async def create(self, space: Space) -> SpaceState:
        async with transaction(self._pool) as conn:
            await conn.execute("SELECT pg_advisory_xact_lock($1)", SPACES_LOCK)
            if await conn.fetchval("SELECT true FROM embedding_spaces WHERE id = $1", space.id):
                raise Conflict(f"there is a space {space.id} already", code="space_exists")
            await create_table(conn, space, status=SpaceStatus.BUILDING)
            [state] = await _states(conn, space.id)
        log.info("embedding_space_created", space=space.id)
        return state

    async def activate(self, space_id: str, *, accept_failed: bool = False) -> SpaceState:
        async with connection(self._pool) as conn:
            state = await _known(conn, space_id)
        if state.status is SpaceStatus.ACTIVE:
            return state
        if not state.indexed or state.waiting > CATCH_UP_CHUNKS:
            raise PreconditionFailed(
                f"{space_id} is still being filled: {state.waiting} chunks are left", code="space_filling"
            )
        async with transaction(self._pool) as conn:
            # Nothing new comes to any space from here on, until it is clear where it is to go.
            await conn.execute("SELECT pg_advisory_xact_lock($1)", SPACES_LOCK, timeout=CATCH_UP_TIMEOUT_S)
            await _known(conn, space_id)
            await _caught_up(conn, space_id)
            if not accept_failed:
                await _require_complete(conn, space_id)
            await conn.execute(_RETIRE)
            await conn.execute(_ACTIVATE, space_id)
            [state] = await _states(conn, space_id)
        await self._spaces.read()
        log.info("embedding_space_activated", space=space_id)
        return state

    async def remember_probe(self, space: Space, probe: Vectors) -> Vectors:
        async with connection(self._pool) as conn:
            kept = await conn.fetchval(
                "UPDATE embedding_spaces SET probe = coalesce(probe, $2) WHERE id = $1 RETURNING probe",
                space.id,
                probe[0].tolist(),
            )
        return np.array([kept], np.float32)

    async def drop(self, space_id: str) -> SpaceState:
        for _ in range(DROP_TRIES):
            try:
                state = await self._drop(space_id)
            except LockNotAvailableError:
                continue
            await self._spaces.read()
            log.info("embedding_space_dropped", space=space_id)
            return state
        raise Unavailable(f"{space_id} is in use without a pause; try again", code="space_busy")

    async def _drop(self, space_id: str) -> SpaceState:
        async with transaction(self._pool) as conn:
            await conn.execute("SELECT pg_advisory_xact_lock($1)", SPACES_LOCK)
            state = await _known(conn, space_id)
            if state.status is SpaceStatus.ACTIVE:
                raise PreconditionFailed(f"{space_id} is the active space", code="space_is_active")
            # The table refers to chunks, so that dropping it locks those, too: first, as searches do, and without
            # a long wait, for new searches queue behind it.
            await conn.execute("SET LOCAL lock_timeout = '500ms'")
            await conn.execute("LOCK TABLE chunks IN ACCESS EXCLUSIVE MODE")
            await conn.execute(f"DROP TABLE {state.space.table}")
            await conn.execute("DELETE FROM embedding_spaces WHERE id = $1", space_id, timeout=COUNT_TIMEOUT_S)
        return state

    async def sample(self, count: int) -> list[tuple[UUID, str]]:
        async with connection(self._pool) as conn:
            rows = await conn.fetch("SELECT id, content FROM chunks WHERE live ORDER BY id LIMIT $1", count)
        return [(row["id"], row["content"]) for row in rows]

    async def nearest(self, vectors: Vectors, space: Space, *, limit: int) -> list[list[Found]]:
        statement = _NEAREST.format(table=space.table, dimensions=space.dimensions)
        async with transaction(self._pool, readonly=True) as conn:
            await conn.execute("SET LOCAL hnsw.iterative_scan = relaxed_order; SET LOCAL hnsw.ef_search = 100")
            return [
                [Found(*row.values()) for row in await conn.fetch(statement, Vector(vector), limit)]
                for vector in vectors
            ]


async def _states(conn: Connection, space_id: str | None = None) -> list[SpaceState]:
    rows = await conn.fetch(_STATES, MAX_FAILURES, space_id, timeout=COUNT_TIMEOUT_S)
    return [await _state(conn, row) for row in rows]


async def _state(conn: Connection, row: Record) -> SpaceState:
    space = Space(row["model"], row["dimensions"])
    filled = await conn.fetchval(f"SELECT count(*) FROM {space.table}", timeout=COUNT_TIMEOUT_S)
    unseeded = 0 if row["seeded"] else await conn.fetchval(_UNSEEDED, space.id, timeout=COUNT_TIMEOUT_S)
    return SpaceState(
        space,
        SpaceStatus(row["status"]),
        filled=filled,
        waiting=row["waiting"] + unseeded,
        failed=row["failed"],
        indexed=row["indexed"],
        created_at=row["created_at"],
        activated_at=row["activated_at"],
        retired_at=row["retired_at"],
    )


async def _known(conn: Connection, space_id: str) -> SpaceState:
    states = await _states(conn, space_id)
    if not states:
        raise NotFound(f"there is no embedding space {space_id!r}", code="space_not_found")
    return states[0]


async def _caught_up(conn: Connection, space_id: str) -> None:
    try:
        async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
            while await conn.fetchval(_WAITING, space_id, MAX_FAILURES):  # noqa: ASYNC110  # by other processes, too
                await asyncio.sleep(CATCH_UP_POLL_S)
    except TimeoutError:
        raise Unavailable(
            f"{space_id} did not catch up with new uploads within {CATCH_UP_TIMEOUT_S:.0f} s; try again",
            code="space_behind",
        ) from None


async def _require_complete(conn: Connection, space_id: str) -> None:
    active = await conn.fetchval("SELECT table_name FROM embedding_spaces WHERE status = 'active'")
    if lost := await conn.fetchval(_LOST.format(active=active), space_id, MAX_FAILURES, timeout=COUNT_TIMEOUT_S):
        raise PreconditionFailed(
            f"{lost} chunks that the active space has could not be encoded for {space_id}", code="space_incomplete"
        )
