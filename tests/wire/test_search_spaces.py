"""Searches while the embedding space changes under them: real service, real database, an embedding stub."""

import asyncio
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
import pytest

from kbmesh.postgres import Pool, PostgresSettings
from services.embedder.adapters.postgres import PostgresBacklog, PostgresSpaces, PostgresSpaceStore
from services.embedder.domain.spaces import Space
from services.search.adapters import postgres as search_postgres
from tests.support.search import SPACE, Corpus, Text
from tests.support.search_service import ANN, Client, EmbeddingStub, running_search

OTHER = Space("other", SPACE.dimensions)
AXES = [[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 1.0]]
QUESTION = "xyzzy"  # no passage has the word, so that vectors alone decide
SEARCHERS = 4


@pytest.fixture
def embedding() -> EmbeddingStub:
    return EmbeddingStub({SPACE.id: AXES[0], OTHER.id: AXES[1]})


@pytest.fixture
async def nearest(pool: Pool) -> dict[str, UUID]:
    """By space the passage that is nearest there, SPACE being the active one. The vector of the question in one
    space is near to yet other passages in the other."""
    corpus = Corpus(pool)
    await corpus.create_space()
    chunks = await corpus.add_document(
        await corpus.add_base(ANN), *(Text(f"Passage {number}.", axis) for number, axis in enumerate(AXES))
    )
    await add_space(pool, OTHER, dict(zip(chunks, (AXES[3], AXES[2], AXES[1], AXES[0]), strict=True)))
    return {SPACE.id: chunks[0], OTHER.id: chunks[2]}


async def add_space(pool: Pool, space: Space, vectors: dict[UUID, list[float]]) -> None:
    """Another space with the same chunks, filled as the embedder does."""
    backlog = PostgresBacklog(pool)
    await spaces_of(pool).create(space)
    while not await backlog.seed(space):
        pass
    await backlog.fill(space, list(vectors), np.array(list(vectors.values()), np.float32))
    assert await backlog.build_index(space)


def spaces_of(pool: Pool) -> PostgresSpaceStore:
    return PostgresSpaceStore(pool, PostgresSpaces(pool))


@dataclass
class Searchers:
    """Clients that search without a pause until `stop`."""

    client: Client
    found: list[str] = field(default_factory=list)
    """The first passage of each answer."""
    stop: bool = False

    async def run(self) -> None:
        while not self.stop:
            self.found.append(await first(self.client))

    async def more(self) -> None:
        """Until some more have been answered."""
        wanted = len(self.found) + 2 * SEARCHERS
        while len(self.found) < wanted:
            await asyncio.sleep(0.001)


async def first(client: Client) -> str:
    response = await client.search(QUESTION, limit=1)
    assert not response.degraded, response.degraded_reason
    return response.passages[0].chunk_id


@pytest.mark.parametrize(
    ("cached_s", "embedder_forgets"),
    [(0.01, False), (5.0, True), (5.0, False)],
    ids=["seen soon", "dropped, as the embedder says", "dropped, as the database says"],
)
async def test_no_search_fails_or_mixes_spaces_while_they_are_activated_and_dropped(
    nearest: dict[str, UUID],
    embedding: EmbeddingStub,
    pool: Pool,
    postgres_settings: PostgresSettings,
    monkeypatch: pytest.MonkeyPatch,
    cached_s: float,
    embedder_forgets: bool,
) -> None:
    monkeypatch.setattr(search_postgres, "SPACE_CACHED_S", cached_s)
    async with running_search(postgres_settings, embedding) as client:
        searchers = Searchers(client)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(SEARCHERS):
                tasks.create_task(searchers.run())
            await searchers.more()
            for _ in range(3):
                for space in (OTHER, SPACE):
                    await spaces_of(pool).activate(space.id)
                    await searchers.more()
            await spaces_of(pool).activate(OTHER.id)
            if embedder_forgets:
                del embedding.vectors[SPACE.id]
            await spaces_of(pool).drop(SPACE.id)
            await searchers.more()
            searchers.stop = True
        afterwards = await first(client)

    spaces = {str(nearest[SPACE.id]), str(nearest[OTHER.id])}
    assert set(searchers.found) == spaces
    assert afterwards == str(nearest[OTHER.id])
