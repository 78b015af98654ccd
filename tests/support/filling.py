"""An embedder's parts around one database, with two models, whose spaces are filled and change places."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np

from kbmesh.errors import Unavailable
from kbmesh.postgres import Pool
from services.embedder.adapters.postgres import (
    PostgresBacklog,
    PostgresSpaces,
    PostgresSpaceStore,
    PostgresVectorStore,
)
from services.embedder.domain.encoding import Encoded, InputType, Lane
from services.embedder.domain.spaces import Space, SpaceState
from services.embedder.entrypoints.filler import fill_spaces
from services.embedder.handlers import embed_chunks, fill
from tests.support.sources import Prepared

OLD, CUT, NEW = Space("old-model", 8), Space("old-model", 4), Space("new-model", 6)


class HashEncoder:
    """The same text has the same vector, and no two texts have; fails on a text with "bad" in it."""

    def __init__(self, dimensions: int, *, name: str = "") -> None:
        self.dimensions = dimensions
        self._name = name
        self.lanes: list[Lane] = []

    async def encode(self, texts: Sequence[str], input_type: InputType, lane: Lane) -> Encoded:
        self.lanes.append(lane)
        if any("bad" in text for text in texts):
            raise RuntimeError("cannot encode this")
        seeds = [int.from_bytes(hashlib.sha256((self._name + text).encode()).digest()[:4]) for text in texts]
        vectors = np.stack([np.random.default_rng(seed).normal(size=self.dimensions) for seed in seeds])
        return Encoded(vectors.astype(np.float32), (1,) * len(texts), (False,) * len(texts))


class Spaces:
    """An embedder's parts around one database whose active space is OLD."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.directory = PostgresSpaces(pool)
        self.store = PostgresSpaceStore(pool, self.directory)
        self.backlog = PostgresBacklog(pool)
        self.vectors = PostgresVectorStore(pool, status_topic="test.status.v1")
        self.models = {OLD.model: HashEncoder(OLD.dimensions), NEW.model: HashEncoder(NEW.dimensions)}

    async def embed(self, *sources: Prepared) -> None:
        """As the consumer does, which tries again for as long as the reason is an outage."""
        while True:
            try:
                await embed_chunks(
                    [one.ready for one in sources], spaces=self.directory, models=self.models, store=self.vectors
                )
                return
            except Unavailable:
                await self.directory.read()

    async def fill(self, space: Space) -> None:
        while await fill(space, models=self.models, backlog=self.backlog):
            pass

    async def state(self, space: Space) -> SpaceState:
        return next(state for state in await self.store.states() if state.space == space)

    async def live(self, space: Space) -> set[object]:
        rows = await self.pool.fetch(f"SELECT chunk_id FROM {space.table} WHERE live")  # noqa: S608
        return {row["chunk_id"] for row in rows}

    async def live_chunks(self) -> set[object]:
        return {row["id"] for row in await self.pool.fetch("SELECT id FROM chunks WHERE live")}

    @asynccontextmanager
    async def filling(self) -> AsyncIterator[None]:
        """With the directory read and the backlogs worked off as in the service, only faster."""
        stop = asyncio.Event()
        await self.directory.read()
        async with asyncio.TaskGroup() as tasks:
            filling = fill_spaces(
                self.directory, models=self.models, store=self.store, backlog=self.backlog, stop=stop
            )
            tasks.create_task(filling)
            watch = tasks.create_task(self.directory.watch())
            try:
                yield
            finally:
                stop.set()
                watch.cancel()
