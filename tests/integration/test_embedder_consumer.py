import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from deploy.embedded.postgres import query
from kbmesh.events.v1.chunks_pb2 import ChunksReady
from kbmesh.messaging import KafkaSettings, Outgoing
from kbmesh.postgres import Pool
from services.embedder.domain.encoding import Encoded, InputType, Lane
from tests.support.databases import DatabaseServer
from tests.support.embedding import (
    SPACE,
    LetterEncoder,
    dead_letters,
    equal,
    members,
    publish,
    send,
    statuses,
    until,
)
from tests.support.sources import add_document

pytestmark = pytest.mark.broker


async def test_a_bad_text_fails_its_document_and_alone_goes_to_the_dead_letters(
    pool: Pool, kafka_settings: KafkaSettings
) -> None:
    bad = await add_document(pool, "good", "bad", "fine", "bad too")
    alone = await add_document(pool, "bad alone")
    good = [await add_document(pool, f"text {n}") for n in range(20)]
    encoder = LetterEncoder()
    async with members(pool, kafka_settings, encoder):
        await publish(kafka_settings, [*good[:10], bad, alone, *good[10:]])
        await until(lambda: equal(statuses(pool), {"ready": 20, "failed": 2}))
        rows = await pool.fetch("SELECT id, error_code, embedded_count FROM documents WHERE status = 'failed'")
        assert {tuple(row) for row in rows} == {
            (bad.document_id, "embedding_failed", 2),
            (alone.document_id, "embedding_failed", 0),
        }
        letters = await dead_letters(kafka_settings, 2)
        events = [ChunksReady.FromString(letter.value or b"") for letter in letters]
        assert {(event.source_id, tuple(map(UUID, event.chunk_ids))) for event in events} == {
            (bad.source.source_id, bad.chunk_ids[1::2]),
            (alone.source.source_id, alone.chunk_ids),
        }
        for letter, event in zip(letters, events, strict=True):
            assert (letter.key, event.revision) == (event.source_id.encode(), 1)
            assert letter.headers["kbmesh-dlq-error"] == b"RuntimeError"
            assert letter.headers["kbmesh-dlq-topic"] == kafka_settings.topics.chunks.encode()
        encoder.mended = True
        await send(kafka_settings, *letters)
        await until(lambda: equal(statuses(pool), {"ready": 22}))


async def test_a_message_that_is_no_event_is_put_aside(pool: Pool, kafka_settings: KafkaSettings) -> None:
    document = await add_document(pool, "text")
    async with members(pool, kafka_settings, LetterEncoder()):
        await send(kafka_settings, Outgoing(kafka_settings.topics.chunks, b"k", b"\xff\xff", {}))
        await publish(kafka_settings, [document])
        await until(lambda: equal(statuses(pool), {"ready": 1}))
        [letter] = await dead_letters(kafka_settings, 1)
        assert letter.value == b"\xff\xff"


async def test_chunks_of_many_messages_are_encoded_together(pool: Pool, kafka_settings: KafkaSettings) -> None:
    documents = [await add_document(pool, f"text {n}") for n in range(128)]
    encoder = LetterEncoder()
    await publish(kafka_settings, documents)
    async with members(pool, kafka_settings, encoder):
        await until(lambda: equal(statuses(pool), {"ready": 128}))
    assert max(encoder.batches) == 32
    assert len(encoder.batches) <= 16


async def test_two_members_share_the_work_and_repeat_none_of_it(pool: Pool, kafka_settings: KafkaSettings) -> None:
    documents = [await add_document(pool, *(f"text {n}" for n in range(8))) for _ in range(40)]
    async with members(pool, kafka_settings, LetterEncoder(), LetterEncoder()):
        for start in range(0, 40, 10):
            await publish(kafka_settings, documents[start : start + 10] * 2)
        await until(lambda: equal(statuses(pool), {"ready": 40}))
    assert await pool.fetchval(f"SELECT count(*) FROM {SPACE.table}") == 320  # noqa: S608
    assert await pool.fetchval("SELECT count(*) FROM outbox") == 40


class HeldEncoder(LetterEncoder):
    """Waits in each batch until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

    async def encode(self, texts: Sequence[str], input_type: InputType, lane: Lane) -> Encoded:
        self.began.set()
        await self.go_on.wait()
        return await super().encode(texts, input_type, lane)


async def test_a_stop_in_a_batch_finishes_it_and_the_next_member_goes_on_from_there(
    pool: Pool, kafka_settings: KafkaSettings
) -> None:
    first, second = await add_document(pool, "a"), await add_document(pool, "b")
    held = HeldEncoder()
    async with members(pool, kafka_settings, held):
        await publish(kafka_settings, [first])
        await held.began.wait()
        asyncio.get_running_loop().call_soon(held.go_on.set)  # no sooner than the stop, which is next
    assert await statuses(pool) == {"ready": 1, "embedding": 1}
    await publish(kafka_settings, [second])
    encoder = LetterEncoder()
    async with members(pool, kafka_settings, encoder):
        await until(lambda: equal(statuses(pool), {"ready": 2}))
    assert encoder.batches == [1]


async def test_a_batch_waits_for_a_database_that_goes_away_while_it_is_encoded(
    pool: Pool, kafka_settings: KafkaSettings, database_server: DatabaseServer, database_dsn: str
) -> None:
    document = await add_document(pool, "a", "b")
    name = database_server.name_of(database_dsn)
    held = HeldEncoder()
    async with members(pool, kafka_settings, held):
        await publish(kafka_settings, [document])
        await held.began.wait()
        with capture_logs() as lines:
            await _change(database_server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            await _change(
                database_server,
                f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'",  # noqa: S608
            )
            held.go_on.set()
            async with asyncio.timeout(30):
                while sum(line["event"] == "dependency_unavailable" for line in lines) < 3:
                    await asyncio.sleep(0.02)
            await _change(database_server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            await until(lambda: equal(statuses(pool), {"ready": 1}))
    assert held.batches == [2, 2]
    assert {line["event"] for line in lines} == {"dependency_unavailable", "chunks_embedded"}


async def _change(server: DatabaseServer, statement: str) -> None:
    await asyncio.to_thread(query, server.dsn, statement)


class SlowEncoder(LetterEncoder):
    """One batch at a time, each as slow as its texts are many."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = asyncio.Lock()

    async def encode(self, texts: Sequence[str], input_type: InputType, lane: Lane) -> Encoded:
        async with self._turn:
            await asyncio.sleep(len(texts) * 0.004)
            return await super().encode(texts, input_type, lane)


async def test_small_documents_do_not_wait_for_large_ones_that_came_before(
    pool: Pool, kafka_settings: KafkaSettings
) -> None:
    large = [await add_document(pool, *(f"text {n}" for n in range(32 * 12))) for _ in range(2)]
    parts = [
        replace(document, chunk_ids=document.chunk_ids[start : start + 32])
        for document in large
        for start in range(0, 32 * 12, 32)
    ]
    small = [await add_document(pool, "text") for _ in range(8)]
    await publish(kafka_settings, parts)
    async with members(pool, kafka_settings, SlowEncoder()):
        await until(lambda: _at_least(pool, embedded=64))
        await publish(kafka_settings, small)
        await until(lambda: equal(statuses(pool), {"ready": 8, "embedding": 2}))


async def _at_least(pool: Pool, *, embedded: int) -> bool:
    return bool(await pool.fetchval("SELECT sum(embedded_count) >= $1 FROM documents", embedded))
