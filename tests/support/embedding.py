"""Members of the embedder's consumer group over cheap vectors, and what they leave behind."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import numpy as np
from aiokafka import AIOKafkaConsumer

from kbmesh.events.v1.chunks_pb2 import ChunksReady
from kbmesh.messaging import KafkaSettings, Outgoing, Producer, RetrySettings, Topics, headers_for
from kbmesh.postgres import Pool
from services.embedder.adapters.postgres import PostgresVectorStore
from services.embedder.domain.encoding import Encoded, InputType, Lane
from services.embedder.domain.spaces import Space
from services.embedder.entrypoints.kafka import consume_chunks
from tests.support.sources import Prepared
from tests.support.vectors import OneSpace, open_space

SPACE = Space("test-model", 4)


class LetterEncoder:
    """Cheap vectors; fails on a text with "bad" in it, until it is mended."""

    dimensions = SPACE.dimensions

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.mended = False

    async def encode(self, texts: Sequence[str], input_type: InputType, lane: Lane) -> Encoded:
        self.batches.append(len(texts))
        if any("bad" in text for text in texts) and not self.mended:
            raise RuntimeError("cannot encode this")
        vectors = np.array([[len(text), 1, 0, 0] for text in texts], np.float32)
        return Encoded(vectors, (1,) * len(texts), (False,) * len(texts))


async def publish(kafka: KafkaSettings, sources: Sequence[Prepared]) -> None:
    outgoing = []
    for prepared in sources:
        event = ChunksReady(
            chunk_ids=map(str, prepared.chunk_ids),
            kind=prepared.source.kind,
            source_id=prepared.source.source_id,
            revision=prepared.source.revision,
        )
        headers = headers_for(event, source="/test", subject=event.source_id)
        outgoing.append(
            Outgoing(
                kafka.topics.chunks,
                event.source_id.encode(),
                event.SerializeToString(),
                {name: value.encode() for name, value in headers.items()},
            )
        )
    await send(kafka, *outgoing)


async def send(kafka: KafkaSettings, *outgoing: Outgoing) -> None:
    producer = Producer(kafka)
    try:
        assert all(await producer.send(outgoing))
    finally:
        await producer.close()


@asynccontextmanager
async def members(pool: Pool, kafka: KafkaSettings, *encoders: LetterEncoder) -> AsyncIterator[None]:
    """Consumers of one group, one for each encoder, stopped at the end as a signal would."""
    await open_space(pool, SPACE)
    store = PostgresVectorStore(pool, status_topic=kafka.topics.status)
    stop = asyncio.Event()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for encoder in encoders:
            tasks.create_task(
                consume_chunks(
                    kafka,
                    spaces=OneSpace(SPACE),
                    models={SPACE.model: encoder},
                    store=store,
                    batch_chunks=32,
                    linger_s=0.05,
                    in_flight=2,
                    retry=RetrySettings(backoff_min_s=0.01),
                    stop=stop,
                )
            )
        try:
            yield
        finally:
            stop.set()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(45):
        while not await condition():
            await asyncio.sleep(0.1)


async def statuses(pool: Pool) -> dict[str, int]:
    rows = await pool.fetch("SELECT status, count(*) FROM documents GROUP BY status")
    return {row["status"]: row["count"] for row in rows}


async def dead_letters(kafka: KafkaSettings, count: int) -> list[Outgoing]:
    """As they would be published to be replayed."""
    consumer = AIOKafkaConsumer(
        Topics.dead_letter(kafka.topics.chunks), auto_offset_reset="earliest", **kafka.client_options()
    )
    await consumer.start()
    try:
        async with asyncio.timeout(15):
            records = [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()
    return [Outgoing(kafka.topics.chunks, r.key, r.value, dict(r.headers)) for r in records]


async def equal(actual: Awaitable[dict[str, int]], expected: dict[str, int]) -> bool:
    return await actual == expected
