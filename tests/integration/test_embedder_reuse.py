"""Chunks of a new revision whose text an older one has embedded already."""

import asyncio

import pytest

from kbmesh.postgres import Pool
from services.embedder.adapters.postgres import PostgresVectorStore
from services.embedder.domain.chunks import ReadyChunks, Source, Stored
from tests.support.sources import add_document, add_record, add_revision
from tests.support.vectors import SPACE, embed, live_chunks, open_space, some_vectors, state


@pytest.fixture
async def store(pool: Pool) -> PostgresVectorStore:
    await open_space(pool, SPACE)
    return PostgresVectorStore(pool, status_topic="test.status.v1")


async def test_a_text_that_an_older_revision_has_gets_its_vector(pool: Pool, store: PostgresVectorStore) -> None:
    old = await add_document(pool, "same", "twice", "twice", "gone")
    await embed(store, old)
    other = await add_document(pool, "new")
    await embed(store, other)
    new = await add_revision(pool, old, "twice", "new", "same", "twice")
    assert [chunk.content for chunk in await store.pending([new.ready], SPACE)] == ["new"]
    assert await embed(store, new, []) == Stored(vectors=0, reused=3, documents_ready=0)
    assert await state(pool, new) == ("embedding", 1, 3)
    assert await live_chunks(pool, new) == set(old.chunk_ids)
    assert await embed(store, new, new.chunk_ids[1:2]) == Stored(vectors=1, documents_ready=1)
    assert await live_chunks(pool, new) == set(new.chunk_ids)


async def test_a_text_under_another_header_is_embedded_anew_and_read_with_it(
    pool: Pool, store: PostgresVectorStore
) -> None:
    old = await add_document(pool, "same", "moved")
    await embed(store, old)
    new = await add_revision(pool, old, "same", "moved")
    await pool.execute("UPDATE chunks SET header = 'File: b.md' WHERE id = $1", new.chunk_ids[1])
    assert [chunk.text for chunk in await store.pending([new.ready], SPACE)] == ["File: b.md\n\nmoved"]
    assert await embed(store, new, new.chunk_ids[1:]) == Stored(vectors=1, reused=1, documents_ready=1)


async def test_only_the_chunks_of_the_batch_are_reused(pool: Pool, store: PostgresVectorStore) -> None:
    old = await add_document(pool, "a", "b")
    await embed(store, old)
    new = await add_revision(pool, old, "a", "b")
    part = ReadyChunks(new.source, new.chunk_ids[:1])
    assert await store.store([part], [], some_vectors(0), SPACE) == Stored(vectors=0, reused=1, documents_ready=0)


async def test_a_superseded_revision_reuses_nothing(pool: Pool, store: PostgresVectorStore) -> None:
    old = await add_document(pool, "a")
    await embed(store, old)
    superseded = await add_revision(pool, old, "a")
    await add_revision(pool, superseded, "a")
    assert await embed(store, superseded, []) == Stored(vectors=0, documents_ready=0)


async def test_members_that_reuse_at_once_store_each_vector_once(pool: Pool, store: PostgresVectorStore) -> None:
    old = await add_document(pool, *map(str, range(64)))
    await embed(store, old)
    new = await add_revision(pool, old, *map(str, range(64)))
    parts = [ReadyChunks(new.source, new.chunk_ids[start : start + 16]) for start in range(0, 64, 16)]
    stored = await asyncio.gather(*(store.store([part], [], some_vectors(0), SPACE) for part in [*parts, *parts]))
    assert sum(result.reused for result in stored) == 64
    assert sum(result.documents_ready for result in stored) == 1
    assert await state(pool, new) == ("ready", 2, 64)


async def test_a_record_reuses_vectors_too(pool: Pool, store: PostgresVectorStore) -> None:
    old = await add_record(pool, Source("skill_chunk", "skill-1", 1), "a", "b")
    await embed(store, old)
    new = await add_record(pool, Source("skill_chunk", "skill-1", 2), "a", "c", live=False)
    assert [chunk.content for chunk in await store.pending([new.ready], SPACE)] == ["c"]
    assert (await embed(store, new, new.chunk_ids[1:])).reused == 1
    assert await live_chunks(pool, new) == set(new.chunk_ids)
