"""Writing to and reading from a topic without the project's own producer and consumer."""

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord

from kbmesh.messaging import KafkaSettings

TIMEOUT_S = 30


async def write(settings: KafkaSettings, topic: str, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
    """Publish (key, value) pairs in order; returns when the broker has them all."""
    producer = AIOKafkaProducer(**settings.client_options(), enable_idempotence=True)
    async with asyncio.timeout(TIMEOUT_S):
        await producer.start()
        try:
            for sent in [await producer.send(topic, value, key=key) for key, value in records]:
                await sent
        finally:
            await producer.stop()


async def read(settings: KafkaSettings, topic: str, count: int) -> list[ConsumerRecord]:
    """The first `count` records of all partitions, each partition's in order."""
    consumer = AIOKafkaConsumer(topic, **settings.client_options(), auto_offset_reset="earliest")
    records: list[ConsumerRecord] = []
    async with asyncio.timeout(TIMEOUT_S):
        await consumer.start()
        try:
            while len(records) < count:
                batches = await consumer.getmany(timeout_ms=200)
                records.extend(record for batch in batches.values() for record in batch)
        finally:
            await consumer.stop()
    return records
