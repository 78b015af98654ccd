"""What this project relies on, whichever broker it runs on: the embedded one must answer as Apache Kafka does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from kbmesh.messaging import KafkaSettings
from tests.support.records import read, write

pytestmark = pytest.mark.broker


@asynccontextmanager
async def member(settings: KafkaSettings, topic: str) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        topic,
        **settings.client_options(),
        group_id=settings.group("contract"),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def until_assigned(consumer: AIOKafkaConsumer, partitions: int) -> None:
    async with asyncio.timeout(30):
        while len(consumer.assignment()) != partitions:
            await consumer.getmany(timeout_ms=50)


async def test_key_value_and_headers_come_back_byte_for_byte(kafka_settings: KafkaSettings) -> None:
    topic = kafka_settings.topics.documents
    headers = [("ce_id", b"1"), ("traceparent", b"00-ab-cd-01"), ("empty", b""), ("ce_id", b"\xff\x00")]
    producer = AIOKafkaProducer(**kafka_settings.client_options())
    async with producer:
        await producer.send_and_wait(topic, b"\x00\xffvalue", key=b"\xfekey", headers=headers)

    [record] = await read(kafka_settings, topic, 1)

    assert (record.key, record.value) == (b"\xfekey", b"\x00\xffvalue")
    assert list(record.headers) == headers


async def test_records_of_one_key_share_a_partition_and_keep_their_order(kafka_settings: KafkaSettings) -> None:
    topic = kafka_settings.topics.documents
    await write(kafka_settings, topic, [(f"k{n % 7}".encode(), str(n).encode()) for n in range(700)])

    records = await read(kafka_settings, topic, 700)

    for key in {record.key for record in records}:
        mine = [record for record in records if record.key == key]
        assert len({record.partition for record in mine}) == 1
        numbers = [int(record.value) for record in mine]
        assert numbers == sorted(numbers)
        assert len(numbers) == 100


async def test_compressed_idempotent_batches_lose_and_double_nothing(kafka_settings: KafkaSettings) -> None:
    topic = kafka_settings.topics.chunks
    producer = AIOKafkaProducer(
        **kafka_settings.client_options(), enable_idempotence=True, compression_type="lz4", linger_ms=5
    )
    async with producer:
        sent = [await producer.send(topic, b"%06d" % n * 50, key=b"%d" % (n % 50)) for n in range(5000)]
        await asyncio.gather(*sent)

    records = await read(kafka_settings, topic, 5000)

    assert sorted(int(record.value[:6]) for record in records) == list(range(5000))


async def test_a_record_under_the_limit_passes_and_one_over_it_is_refused(
    kafka_settings: KafkaSettings,
) -> None:
    topic = kafka_settings.topics.records
    producer = AIOKafkaProducer(**kafka_settings.client_options(), max_request_size=4 * 1024**2)
    async with producer:
        await producer.send_and_wait(topic, b"x" * 900_000, key=b"k")
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, b"x" * 2_000_000, key=b"k")

    [record] = await read(kafka_settings, topic, 1)
    assert len(record.value) == 900_000


async def test_a_compacted_topic_refuses_a_record_without_a_key(kafka_settings: KafkaSettings) -> None:
    producer = AIOKafkaProducer(**kafka_settings.client_options())
    async with producer:
        with pytest.raises(KafkaError):
            await producer.send_and_wait(kafka_settings.topics.status, b"state")


async def test_a_group_goes_on_where_its_last_member_committed(kafka_settings: KafkaSettings) -> None:
    topic = kafka_settings.topics.documents
    await write(kafka_settings, topic, [(b"k", str(n).encode()) for n in range(10)])
    async with member(kafka_settings, topic) as first:
        record = [await first.getone() for _ in range(4)][-1]
        await first.commit({TopicPartition(topic, record.partition): record.offset + 1})

    async with member(kafka_settings, topic) as second:
        assert (await second.getone()).value == b"4"


async def test_the_offsets_of_a_group_are_visible_to_an_operator(kafka_settings: KafkaSettings) -> None:
    topic = kafka_settings.topics.documents
    await write(kafka_settings, topic, [(b"k", b"v")] * 3)
    async with member(kafka_settings, topic) as consumer:
        partition = TopicPartition(topic, (await consumer.getone()).partition)
        await consumer.commit({partition: 2})
        assert (await consumer.end_offsets([partition]))[partition] == 3
    admin = AIOKafkaAdminClient(**kafka_settings.client_options())
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(kafka_settings.group("contract"))
    finally:
        await admin.close()

    assert offsets[partition].offset == 2


async def test_members_share_the_partitions_and_take_over_from_who_leaves(
    kafka_settings: KafkaSettings,
) -> None:
    topic = kafka_settings.topics.documents
    async with member(kafka_settings, topic) as first:
        await until_assigned(first, 4)
        async with member(kafka_settings, topic) as second:
            await asyncio.gather(until_assigned(first, 2), until_assigned(second, 2))
            assert not first.assignment() & second.assignment()

        await until_assigned(first, 4)


async def test_a_paused_partition_gives_nothing_until_it_is_resumed(kafka_settings: KafkaSettings) -> None:
    topic = kafka_settings.topics.documents
    await write(kafka_settings, topic, [(b"k", b"v")])
    async with member(kafka_settings, topic) as consumer:
        await until_assigned(consumer, 4)
        await consumer.seek_to_beginning()
        consumer.pause(*consumer.assignment())
        assert await consumer.getmany(timeout_ms=500) == {}

        consumer.resume(*consumer.assignment())

        async with asyncio.timeout(10):
            assert (await consumer.getone()).value == b"v"
