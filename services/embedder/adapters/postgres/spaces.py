import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import structlog
from asyncpg import Record

from kbmesh.errors import Misconfigured, NotFound, Unavailable
from kbmesh.postgres import Connection, Pool, connection, transaction
from services.embedder.domain.spaces import Space, SpaceStatus

log = structlog.get_logger(__name__)

SPACES_LOCK: Final = 0x6B62_6D65_7368_01
"""Advisory lock: shared to write vectors, which depends on what spaces there are, exclusive to change those."""
READ_EVERY_S: Final = 2.0

_SPACE_TABLE: Final = """
CREATE TABLE {table} (
    chunk_id  uuid PRIMARY KEY REFERENCES chunks ON DELETE CASCADE,
    kb_id     uuid,
    kind      text NOT NULL,
    live      boolean NOT NULL,
    embedding vector({dimensions}) NOT NULL
);
CREATE INDEX {table}_kb ON {table} (kb_id);
"""
_KEEP_IN_ROW: Final = "ALTER TABLE {table} ALTER COLUMN embedding SET STORAGE PLAIN"
"""A search that is exact over one knowledge base reads them all."""
FITS_IN_ROW: Final = 2_000
"""Values of 4 bytes, of the 8 KB that a row may have."""
INDEX: Final = """
CREATE INDEX {how} {table}_hnsw ON {table} USING hnsw ((embedding::halfvec({dimensions})) halfvec_cosine_ops)
    WITH (m = 16, ef_construction = 64)
"""


class PostgresSpaces:
    """Port SpaceDirectory: what `embedding_spaces` says, read again every few seconds by `watch`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._by_id: dict[str, Space] = {}
        self.active: Space | None = None
        """None before the first start."""

    async def find(self, space_id: str | None = None) -> Space:
        if (space := self._find(space_id)) is None:
            await self.read()
            space = self._find(space_id)
        if space is not None:
            return space
        raise NotFound(f"there is no embedding space {space_id or 'that is active'}", code="space_not_found")

    def known(self) -> list[Space]:
        return list(self._by_id.values())

    def inactive(self) -> list[Space]:
        return [space for space in self._by_id.values() if space != self.active]

    def _find(self, space_id: str | None) -> Space | None:
        return self.active if space_id is None else self._by_id.get(space_id)

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(READ_EVERY_S)
            try:
                await self.read()
            except Unavailable as error:
                log.warning("embedding_spaces_not_read", error=error.code)

    async def read(self) -> None:
        """Raises Unavailable: the database does not answer; what was known is kept."""
        async with connection(self._pool) as conn:
            rows = await conn.fetch("SELECT id, model, dimensions, status FROM embedding_spaces")
        self._by_id = {row["id"]: Space(row["model"], row["dimensions"]) for row in rows}
        self.active = next((self._by_id[row["id"]] for row in rows if row["status"] == "active"), None)


async def ensure_space(pool: Pool, model: str, dimensions: int | None, models: Mapping[str, int]) -> None:
    """Makes sure that the active space can be encoded for; creates the configured one when there is none yet.

    Args:
        model: the configured one, `dimensions` as configured: None for all that it has.
        models: of each model that is there, its dimensions.

    Raises:
        Misconfigured: the active space is one of a model that is not there, or what was configured fits no
            space; its vectors could not be compared with those that are there.
    """
    if dimensions is not None and dimensions > models.get(model, dimensions):
        raise Misconfigured(f"{model} has {models[model]} dimensions, not {dimensions}", code="space_mismatch")
    async with transaction(pool) as conn:
        await conn.execute("SELECT pg_advisory_xact_lock($1)", SPACES_LOCK)
        known = await conn.fetch("SELECT model, dimensions, status FROM embedding_spaces ORDER BY status, id")
        if not known:
            space = Space(model, dimensions or models[model])
            await create_table(conn, space, status=SpaceStatus.ACTIVE)
            log.info("embedding_space_created", space=space.id)
            return
    if not any(row["model"] == model and row["dimensions"] == (dimensions or row["dimensions"]) for row in known):
        wanted = f"{model} with {dimensions} dimensions" if dimensions else model
        raise _mismatch(f"the model is configured to be {wanted}", known)
    for row in known:
        if row["status"] == "active" and models.get(row["model"], 0) < row["dimensions"]:
            raise _mismatch(f"the models that are configured are {', '.join(models)}", known)


async def create_table(conn: Connection, space: Space, *, status: SpaceStatus) -> None:
    """A space, and the table of its vectors; the index of one that is to be filled comes later."""
    active = status is SpaceStatus.ACTIVE
    await conn.execute(
        """
        INSERT INTO embedding_spaces (id, model, dimensions, table_name, status, seeded, indexed, activated_at)
        VALUES ($1, $2, $3, $4, $5, $6, $6, CASE WHEN $6 THEN now() END)
        """,
        space.id,
        space.model,
        space.dimensions,
        space.table,
        status,
        active,
    )
    await conn.execute(_SPACE_TABLE.format(table=space.table, dimensions=space.dimensions))
    if space.dimensions <= FITS_IN_ROW:
        await conn.execute(_KEEP_IN_ROW.format(table=space.table))
    if active:
        await conn.execute(INDEX.format(how="", table=space.table, dimensions=space.dimensions))


def _mismatch(configured: str, known: Sequence[Record]) -> Misconfigured:
    spaces = ", ".join(f"{row['model']} with {row['dimensions']} dimensions ({row['status']})" for row in known)
    return Misconfigured(f"{configured}, but the database has {spaces}", code="space_mismatch")
