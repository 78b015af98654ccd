"""The outbox to the broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord

from kbmesh.events.v1.documents_pb2 import DocumentDeleted, DocumentUploaded
from kbmesh.messaging import KafkaSettings, Producer, decode, enqueue, unpack
from kbmesh.postgres import Pool, PostgresSettings, transaction
from services.ingest.adapters.postgres import OutboxRelay

pytestmark = pytest.mark.broker


@asynccontextmanager
async def relaying(pool: Pool, postgres: PostgresSettings, kafka: KafkaSettings) -> AsyncIterator[None]:
    producer, stop = Producer(kafka), asyncio.Event()
    task = asyncio.create_task(OutboxRelay(pool, postgres, producer).run(stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, 20)
        await producer.close()


async def write(pool: Pool, topic: str, key: str, revisions: range) -> None:
    for revision in revisions:
        async with transaction(pool) as conn:
            event = DocumentUploaded(document_id=key, revision=revision)
            await enqueue(conn, topic, key, event, source="/test")


async def read(kafka: KafkaSettings, topic: str, count: int) -> list[ConsumerRecord]:
    consumer = AIOKafkaConsumer(
        topic, auto_offset_reset="earliest", enable_auto_commit=False, **kafka.client_options()
    )
    await consumer.start()
    try:
        async with asyncio.timeout(30):
            return [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()


async def unpublished(pool: Pool) -> int:
    count: int = await pool.fetchval("SELECT count(*) FROM outbox WHERE published_at IS NULL")
    return count


async def until_published(pool: Pool) -> None:
    async with asyncio.timeout(30):
        while await unpublished(pool):
            await asyncio.sleep(0.02)


async def test_events_are_published_as_they_were_written(
    pool: Pool, postgres_settings: PostgresSettings, kafka_settings: KafkaSettings
) -> None:
    topic = kafka_settings.topics.documents
    async with relaying(pool, postgres_settings, kafka_settings):
        await write(pool, topic, "doc", range(1, 2))
        await until_published(pool)

    [record] = await read(kafka_settings, topic, 1)
    event = decode(dict(record.headers), record.value)
    assert (record.key, event.source, event.subject) == (b"doc", "/test", "doc")
    assert unpack(event, DocumentUploaded).revision == 1


async def test_what_was_written_before_the_relay_started_is_published(
    pool: Pool, postgres_settings: PostgresSettings, kafka_settings: KafkaSettings
) -> None:
    await write(pool, kafka_settings.topics.documents, "doc", range(3))
    async with relaying(pool, postgres_settings, kafka_settings):
        await until_published(pool)
    assert len(await read(kafka_settings, kafka_settings.topics.documents, 3)) == 3


async def test_order_per_key_holds_and_nothing_doubles_with_two_relays(
    pool: Pool, postgres_settings: PostgresSettings, kafka_settings: KafkaSettings
) -> None:
    topic = kafka_settings.topics.documents
    async with (
        relaying(pool, postgres_settings, kafka_settings),
        relaying(pool, postgres_settings, kafka_settings),
    ):
        await asyncio.gather(*(write(pool, topic, f"doc-{n}", range(50)) for n in range(4)))
        await until_published(pool)

    seen: dict[bytes, list[int]] = {}
    for record in await read(kafka_settings, topic, 200):
        revision = unpack(decode(dict(record.headers), record.value), DocumentUploaded).revision
        seen.setdefault(record.key, []).append(revision)
    assert all(revisions == list(range(50)) for revisions in seen.values())


async def test_a_transaction_that_rolls_back_publishes_nothing(
    pool: Pool, postgres_settings: PostgresSettings, kafka_settings: KafkaSettings
) -> None:
    topic = kafka_settings.topics.documents
    async with relaying(pool, postgres_settings, kafka_settings):
        with pytest.raises(ZeroDivisionError):
            async with transaction(pool) as conn:
                await enqueue(conn, topic, "doc", DocumentDeleted(document_id="doc"), source="/test")
                raise ZeroDivisionError
        await write(pool, topic, "other", range(1))
        await until_published(pool)

    [record] = await read(kafka_settings, topic, 1)
    assert record.key == b"other"


async def test_a_lost_notification_connection_is_replaced(
    pool: Pool, postgres_settings: PostgresSettings, kafka_settings: KafkaSettings
) -> None:
    topic = kafka_settings.topics.documents
    async with relaying(pool, postgres_settings, kafka_settings):
        await write(pool, topic, "doc", range(1))
        await until_published(pool)
        await pool.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        )
        await write(pool, topic, "doc", range(1, 2))
        await until_published(pool)
    assert len(await read(kafka_settings, topic, 2)) == 2


async def test_without_a_broker_events_wait(pool: Pool, postgres_settings: PostgresSettings) -> None:
    nowhere = KafkaSettings(bootstrap_servers="127.0.0.1:1", request_timeout_s=2)
    await write(pool, "topic", "doc", range(1))
    async with relaying(pool, postgres_settings, nowhere):
        await asyncio.sleep(0.5)
        assert await unpublished(pool) == 1
