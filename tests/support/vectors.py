"""Vectors for prepared sources, and what has become of these in the database."""

from collections.abc import Sequence
from uuid import UUID

import numpy as np

from kbmesh.errors import NotFound
from kbmesh.postgres import Pool
from services.embedder.adapters.postgres import PostgresVectorStore, ensure_space
from services.embedder.domain.chunks import Stored
from services.embedder.domain.encoding import Vectors
from services.embedder.domain.spaces import Space
from tests.support.sources import Prepared

SPACE = Space("test-model", 8)


class OneSpace:
    """Port SpaceDirectory where nothing changes."""

    def __init__(self, space: Space = SPACE) -> None:
        self._space = space

    async def find(self, space_id: str | None = None) -> Space:
        if space_id not in (None, self._space.id):
            raise NotFound("no such space")
        return self._space

    def known(self) -> list[Space]:
        return [self._space]

    def inactive(self) -> list[Space]:
        return []


async def open_space(pool: Pool, space: Space = SPACE) -> None:
    """Makes it the active one of a database that has none."""
    await ensure_space(pool, space.model, space.dimensions, {space.model: space.dimensions})


def some_vectors(count: int) -> Vectors:
    values = np.random.default_rng(1).normal(size=(count, SPACE.dimensions)).astype(np.float32)
    unit: Vectors = values / np.linalg.norm(values, axis=1, keepdims=True)
    return unit


async def embed(store: PostgresVectorStore, prepared: Prepared, chunk_ids: Sequence[UUID] | None = None) -> Stored:
    ids = prepared.chunk_ids if chunk_ids is None else chunk_ids
    return await store.store([prepared.ready], ids, some_vectors(len(ids)), SPACE)


async def live_chunks(pool: Pool, prepared: Prepared) -> set[UUID]:
    """What search sees of a source, in one snapshot."""
    rows = await pool.fetch(
        f"SELECT v.chunk_id FROM {SPACE.table} v JOIN chunks c ON c.id = v.chunk_id"  # noqa: S608
        " WHERE v.live AND c.live AND (c.kind, c.source_id) = ($1, $2)",
        prepared.source.kind,
        prepared.source.source_id,
    )
    return {row["chunk_id"] for row in rows}


async def state(pool: Pool, prepared: Prepared) -> tuple[str, int | None, int]:
    row = await pool.fetchrow(
        "SELECT status, live_revision, embedded_count FROM documents WHERE id = $1", prepared.document_id
    )
    assert row is not None
    return row["status"], row["live_revision"], row["embedded_count"]
