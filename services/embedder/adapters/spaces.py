import time
from collections.abc import Mapping, Sequence
from typing import Final

import structlog
from asyncpg import Record

from kbmesh.errors import Misconfigured, NotFound
from kbmesh.postgres import Connection, Pool, connection, transaction
from services.embedder.domain.spaces import Space

log = structlog.get_logger(__name__)

SPACES_LOCK: Final = 0x6B62_6D65_7368_01
"""Advisory lock: shared to write vectors, which depends on what spaces there are, exclusive to change those."""
KNOWN_FOR_S: Final = 2.0

_SPACE_TABLE: Final = """
CREATE TABLE {table} (
    chunk_id  uuid PRIMARY KEY REFERENCES chunks ON DELETE CASCADE,
    kb_id     uuid,
    kind      text NOT NULL,
    live      boolean NOT NULL,
    embedding vector({dimensions}) NOT NULL
);
-- Kept in the row: a search that is exact over one knowledge base reads them all.
ALTER TABLE {table} ALTER COLUMN embedding SET STORAGE PLAIN;
CREATE INDEX {table}_kb ON {table} (kb_id);
"""
_INDEX: Final = """
CREATE INDEX {table}_hnsw ON {table} USING hnsw ((embedding::halfvec({dimensions})) halfvec_cosine_ops)
    WITH (m = 16, ef_construction = 64)
"""


class PostgresSpaces:
    """Port SpaceDirectory: what `embedding_spaces` says, read again every few seconds."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._by_id: dict[str, Space] = {}
        self._active: Space | None = None
        self._read_at = -KNOWN_FOR_S

    async def find(self, space_id: str | None = None) -> Space:
        for fresh in (False, True):
            if fresh or time.monotonic() - self._read_at > KNOWN_FOR_S:
                await self.read()
            space = self._active if space_id is None else self._by_id.get(space_id)
            if space is not None:
                return space
        raise NotFound(f"there is no embedding space {space_id or 'that is active'}", code="space_not_found")

    async def known(self) -> list[Space]:
        if time.monotonic() - self._read_at > KNOWN_FOR_S:
            await self.read()
        return list(self._by_id.values())

    async def read(self) -> None:
        """Forgets what was known."""
        async with connection(self._pool) as conn:
            rows = await conn.fetch("SELECT id, model, dimensions, status FROM embedding_spaces")
        self._by_id = {row["id"]: Space(row["model"], row["dimensions"]) for row in rows}
        self._active = next((self._by_id[row["id"]] for row in rows if row["status"] == "active"), None)
        self._read_at = time.monotonic()


async def ensure_space(pool: Pool, model: str, dimensions: int | None, models: Mapping[str, int]) -> None:
    """Makes sure that the active space can be encoded for; creates the configured one when there is none yet.

    Args:
        model: the configured one, `dimensions` as configured: None for all that it has.
        models: of each model that is there, its dimensions.

    Raises:
        Misconfigured: the active space is one of a model that is not there, or what was configured fits no
            space; its vectors could not be compared with those that are there.
    """
    async with transaction(pool) as conn:
        await conn.execute("SELECT pg_advisory_xact_lock($1)", SPACES_LOCK)
        known = await conn.fetch("SELECT model, dimensions, status FROM embedding_spaces ORDER BY status, id")
        if not known:
            await _create(conn, Space(model, dimensions or models[model]))
            return
    if not any(row["model"] == model and row["dimensions"] == (dimensions or row["dimensions"]) for row in known):
        wanted = f"{model} with {dimensions} dimensions" if dimensions else model
        raise _mismatch(f"the model is configured to be {wanted}", known)
    for row in known:
        if row["status"] == "active" and models.get(row["model"], 0) < row["dimensions"]:
            raise _mismatch(f"the models that are configured are {', '.join(models)}", known)


async def _create(conn: Connection, space: Space) -> None:
    await conn.execute(
        "INSERT INTO embedding_spaces (id, model, dimensions, status, table_name)"
        " VALUES ($1, $2, $3, 'active', $4)",
        space.id,
        space.model,
        space.dimensions,
        space.table,
    )
    names = {"table": space.table, "dimensions": space.dimensions}
    await conn.execute(_SPACE_TABLE.format_map(names))
    await conn.execute(_INDEX.format_map(names))
    log.info("embedding_space_created", space=space.id)


def _mismatch(configured: str, known: Sequence[Record]) -> Misconfigured:
    spaces = ", ".join(f"{row['model']} with {row['dimensions']} dimensions ({row['status']})" for row in known)
    return Misconfigured(f"{configured}, but the database has {spaces}", code="space_mismatch")
