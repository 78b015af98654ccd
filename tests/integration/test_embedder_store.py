import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from kbmesh.errors import Misconfigured, Unavailable
from kbmesh.events.v1.status_pb2 import DocumentStatus, DocumentStatusChanged
from kbmesh.postgres import Pool
from services.embedder.adapters.postgres import PostgresVectorStore
from services.embedder.domain.chunks import Source, Stored
from services.embedder.domain.spaces import Space
from tests.support.sources import Prepared, add_document, add_record, add_revision
from tests.support.vectors import SPACE, embed, live_chunks, open_space, some_vectors, state

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
STATUS_TOPIC = "test.status.v1"


@pytest.fixture
async def store(pool: Pool) -> PostgresVectorStore:
    await open_space(pool, SPACE)
    return PostgresVectorStore(pool, status_topic=STATUS_TOPIC)


async def announced(pool: Pool) -> list[tuple[str, int, str, int, int]]:
    """What the outbox holds: document, revision, status, embedded and all chunks."""
    rows = await pool.fetch("SELECT topic, key, payload FROM outbox ORDER BY id")
    events = [DocumentStatusChanged.FromString(row["payload"]) for row in rows]
    assert all(row["topic"] == STATUS_TOPIC for row in rows)
    assert [row["key"] for row in rows] == [event.document_id for event in events]
    return [
        (
            event.document_id,
            event.revision,
            DocumentStatus.Name(event.status).removeprefix("DOCUMENT_STATUS_").lower(),
            event.embedded_count,
            event.chunk_count,
        )
        for event in events
    ]


async def test_a_document_is_ready_once_its_last_chunk_has_a_vector(
    pool: Pool, store: PostgresVectorStore
) -> None:
    document = await add_document(pool, "a", "b", "c")
    id_ = document.source.source_id
    assert await embed(store, document, document.chunk_ids[:2]) == Stored(vectors=2, documents_ready=0)
    assert await state(pool, document) == ("embedding", 1, 2)
    assert await embed(store, document, document.chunk_ids[2:]) == Stored(vectors=1, documents_ready=1)
    assert await state(pool, document) == ("ready", 1, 3)
    assert await live_chunks(pool, document) == set(document.chunk_ids)
    assert await announced(pool) == [(id_, 1, "embedding", 2, 3), (id_, 1, "ready", 3, 3)]


async def test_vectors_carry_what_search_filters_on(pool: Pool, store: PostgresVectorStore) -> None:
    document = await add_document(pool, "a")
    vectors = some_vectors(1)
    await store.store([document.ready], document.chunk_ids, vectors, SPACE)
    row = await pool.fetchrow(f"SELECT kb_id, kind, live, embedding FROM {SPACE.table}")  # noqa: S608
    assert row is not None
    assert (row["kb_id"], row["kind"], row["live"]) == (document.kb_id, "document_chunk", True)
    assert row["embedding"].to_list() == vectors[0].tolist()


async def test_a_redelivered_batch_changes_nothing(pool: Pool, store: PostgresVectorStore) -> None:
    document = await add_document(pool, "a", "b")
    await embed(store, document)
    before = await announced(pool)
    assert await store.pending([document.ready], SPACE) == []
    assert await embed(store, document) == Stored(vectors=0, documents_ready=0)
    assert await embed(store, document, []) == Stored(vectors=0, documents_ready=0)
    assert await announced(pool) == before
    assert await state(pool, document) == ("ready", 1, 2)


async def test_pending_leaves_out_what_is_embedded_superseded_or_gone(
    pool: Pool, store: PostgresVectorStore
) -> None:
    halfway, old, gone = [await add_document(pool, "a", "b") for _ in range(3)]
    await embed(store, halfway, halfway.chunk_ids[:1])
    new = await add_revision(pool, old, "c")
    await pool.execute("DELETE FROM documents WHERE id = $1", gone.document_id)
    record = await add_record(pool, Source("skill_chunk", "skill-1", 3), "d")
    deleted = await add_record(pool, Source("skill_chunk", "skill-2", 1), "e")
    await pool.execute("UPDATE records SET deleted_at = now() WHERE source_id = 'skill-2'")
    pending = await store.pending([item.ready for item in (halfway, old, gone, new, record, deleted)], SPACE)
    assert {chunk.id: chunk.content for chunk in pending} == {
        halfway.chunk_ids[1]: "b",
        new.chunk_ids[0]: "c",
        record.chunk_ids[0]: "d",
    }


async def test_a_superseded_revision_is_not_stored(pool: Pool, store: PostgresVectorStore) -> None:
    old = await add_document(pool, "a")
    new = await add_revision(pool, old, "b", "c")
    assert await embed(store, old) == Stored(vectors=0, documents_ready=0)
    assert await announced(pool) == []
    assert await state(pool, new) == ("embedding", 1, 0)


async def test_a_chunk_of_another_source_than_the_message_names_is_not_stored(
    pool: Pool, store: PostgresVectorStore
) -> None:
    named, other = await add_document(pool, "a"), await add_document(pool, "b")
    assert await embed(store, named, other.chunk_ids) == Stored(vectors=0, documents_ready=0)


async def test_a_deleted_document_is_not_resurrected(pool: Pool, store: PostgresVectorStore) -> None:
    document = await add_document(pool, "a")
    async with pool.acquire() as conn:
        deletion = conn.transaction()
        await deletion.start()
        await conn.execute("DELETE FROM documents WHERE id = $1", document.document_id)
        storing = asyncio.create_task(embed(store, document))
        while not await pool.fetchval(WAITING):
            await asyncio.sleep(0.01)
        await deletion.commit()
    assert await storing == Stored(vectors=0, documents_ready=0)
    assert await announced(pool) == []
    await store.mark_failed(document.source, code="embedding_failed", detail="")
    assert await announced(pool) == []


async def test_two_members_on_one_document_make_it_ready_once(pool: Pool, store: PostgresVectorStore) -> None:
    document = await add_document(pool, *map(str, range(64)))
    parts = [document.chunk_ids[start : start + 16] for start in range(0, 64, 16)]
    stored = await asyncio.gather(*(embed(store, document, part) for part in [*parts, *parts]))
    assert sum(result.vectors for result in stored) == 64
    assert sum(result.documents_ready for result in stored) == 1
    assert await state(pool, document) == ("ready", 1, 64)
    embedded = [event[3] for event in await announced(pool)]
    assert embedded == [16, 32, 48, 64]


async def test_members_with_the_same_documents_in_another_order_do_not_deadlock(
    pool: Pool, store: PostgresVectorStore
) -> None:
    documents = [await add_document(pool, *map(str, range(4))) for _ in range(8)]

    async def one_member(order: Sequence[Prepared]) -> None:
        for number in range(4):
            ids = [document.chunk_ids[number] for document in order]
            await store.store([document.ready for document in order], ids, some_vectors(len(ids)), SPACE)

    await asyncio.gather(*(one_member(order) for order in (documents, documents[::-1]) for _ in range(3)))
    assert {await state(pool, document) for document in documents} == {("ready", 1, 4)}


async def test_a_reader_sees_one_whole_revision_at_any_time(pool: Pool, store: PostgresVectorStore) -> None:
    old = await add_document(pool, *(f"old {n}" for n in range(40)))
    await embed(store, old)
    new = await add_revision(pool, old, *(f"new {n}" for n in range(60)))
    seen: list[set[UUID]] = []

    async def read() -> None:
        while not seen or seen[-1] != set(new.chunk_ids):
            seen.append(await live_chunks(pool, old))

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(read())
        for start in range(0, 60, 6):
            await embed(store, new, new.chunk_ids[start : start + 6])
    assert len(seen) > 2
    assert {frozenset(chunks) for chunks in seen} == {frozenset(old.chunk_ids), frozenset(new.chunk_ids)}
    assert await state(pool, new) == ("ready", 2, 60)
    assert await pool.fetchval("SELECT count(*) FROM chunks") == 60
    assert await pool.fetchval(f"SELECT count(*) FROM {SPACE.table}") == 60  # noqa: S608


async def test_records_advance_and_swap_like_documents_without_a_status_event(
    pool: Pool, store: PostgresVectorStore
) -> None:
    old = await add_record(pool, Source("skill_chunk", "skill-1", 1), "a")
    await embed(store, old)
    new = await add_record(pool, Source("skill_chunk", "skill-1", 5), "b", "c", live=False)
    await embed(store, new, new.chunk_ids[:1])
    assert await live_chunks(pool, new) == set(old.chunk_ids)
    await embed(store, new, new.chunk_ids[1:])
    assert await live_chunks(pool, new) == set(new.chunk_ids)
    assert await pool.fetchval("SELECT live_revision FROM records") == 5
    assert await announced(pool) == []


async def test_a_batch_may_mix_kinds_and_documents(pool: Pool, store: PostgresVectorStore) -> None:
    mixed = [
        await add_document(pool, "a"),
        await add_record(pool, Source("industry_kpi", "kpi-1", 1), "b"),
        await add_record(pool, Source("skill_chunk", "kpi-1", 1), "c"),
        await add_document(pool, "d"),
    ]
    ids = [chunk_id for prepared in mixed for chunk_id in prepared.chunk_ids]
    stored = await store.store([prepared.ready for prepared in mixed], ids, some_vectors(4), SPACE)
    assert stored == Stored(vectors=4, documents_ready=2)
    for prepared in mixed:
        assert await live_chunks(pool, prepared) == set(prepared.chunk_ids)


async def test_a_failed_document_says_why_and_recovers_when_its_chunks_come_again(
    pool: Pool, store: PostgresVectorStore
) -> None:
    document = await add_document(pool, "a", "b")
    for _ in range(2):
        await store.mark_failed(document.source, code="embedding_failed", detail="why")
    assert await pool.fetchval("SELECT error_code FROM documents") == "embedding_failed"
    await embed(store, document, document.chunk_ids[:1])
    assert (await state(pool, document))[0] == "failed"
    await embed(store, document, document.chunk_ids[1:])
    assert await state(pool, document) == ("ready", 1, 2)
    assert [event[2] for event in await announced(pool)] == ["failed", "failed", "ready"]


async def test_a_ready_or_superseded_document_is_not_failed(pool: Pool, store: PostgresVectorStore) -> None:
    ready, old = await add_document(pool, "a"), await add_document(pool, "b")
    await embed(store, ready)
    await add_revision(pool, old, "c")
    for prepared in (ready, old):
        await store.mark_failed(prepared.source, code="embedding_failed", detail="why")
    assert await pool.fetchval("SELECT count(*) FROM documents WHERE status = 'failed'") == 0


async def test_starts_at_the_same_time_create_one_active_space(pool: Pool) -> None:
    await asyncio.gather(*(open_space(pool, SPACE) for _ in range(5)))
    assert [tuple(row) for row in await pool.fetch("SELECT id, status, table_name FROM embedding_spaces")] == [
        ("test_model_8", "active", "vectors_test_model_8")
    ]
    storage = await pool.fetchval(
        "SELECT attstorage FROM pg_attribute WHERE attrelid = $1::regclass AND attname = 'embedding'", SPACE.table
    )
    assert storage == b"p"
    indexes = await pool.fetch("SELECT indexdef FROM pg_indexes WHERE tablename = $1", SPACE.table)
    assert any("hnsw" in row["indexdef"] and "halfvec_cosine_ops" in row["indexdef"] for row in indexes)


@pytest.mark.parametrize("other", [Space("test-model", 16), Space("another-model", 8)])
async def test_another_model_or_dimension_than_the_active_one_stops_the_start(pool: Pool, other: Space) -> None:
    await open_space(pool, SPACE)
    with pytest.raises(Misconfigured, match="test-model") as refused:
        await open_space(pool, other)
    assert refused.value.code == "space_mismatch"
    assert await pool.fetchval("SELECT count(*) FROM embedding_spaces") == 1


async def test_a_batch_that_was_encoded_for_another_space_is_not_stored(
    pool: Pool, store: PostgresVectorStore
) -> None:
    document = await add_document(pool, "a")
    with pytest.raises(Unavailable) as refused:
        await store.store([document.ready], document.chunk_ids, some_vectors(1), Space("another-model", 8))
    assert refused.value.code == "space_changed"
    assert await state(pool, document) == ("embedding", 1, 0)
