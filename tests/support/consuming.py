"""Running the project's consumer in a test, and looking at what it leaves on the broker."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from kbmesh.messaging import Consumer, KafkaSettings, Message, Producer, RetrySettings, run_batched, run_serial
from kbmesh.messaging.processing import HandleBatch, OnDead

TIMEOUT_S = 30
GROUP = "worker"
FAST = RetrySettings(attempts=3, backoff_min_s=0.01, backoff_max_s=0.05, stop_timeout_s=5)


async def publish(
    settings: KafkaSettings,
    topic: str,
    values: Iterable[bytes | None],
    *,
    partition: int = 0,
    key: bytes | None = b"key",
    headers: Sequence[tuple[str, bytes]] = (),
) -> None:
    """Writes to one partition, in order; returns when the broker has them all."""
    producer = AIOKafkaProducer(**settings.client_options(), enable_idempotence=True)
    async with asyncio.timeout(TIMEOUT_S):
        await producer.start()
        try:
            sent = [
                await producer.send(topic, value, key=key, partition=partition, headers=list(headers))
                for value in values
            ]
            await asyncio.gather(*sent)
        finally:
            await producer.stop()


async def committed(settings: KafkaSettings, topic: str) -> dict[int, int]:
    """Committed offset of each partition of the group of these tests."""
    admin = AIOKafkaAdminClient(**settings.client_options())
    async with asyncio.timeout(TIMEOUT_S):
        await admin.start()
        try:
            offsets = await admin.list_consumer_group_offsets(settings.group(GROUP))
        finally:
            await admin.close()
    return {tp.partition: found.offset for tp, found in offsets.items() if tp.topic == topic and found.offset >= 0}


async def until_committed(settings: KafkaSettings, topic: str, expected: dict[int, int]) -> None:
    """Waits until these are the committed offsets.

    Raises:
        TimeoutError: they do not become so.
    """
    async with asyncio.timeout(TIMEOUT_S):
        while await committed(settings, topic) != expected:
            await asyncio.sleep(0.05)


async def eventually(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    """Waits until `condition` holds.

    Raises:
        TimeoutError: it does not within `timeout_s`.
    """
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


@dataclass
class Seen:
    """A handler that notes what it was given."""

    messages: list[Message] = field(default_factory=list)

    async def handle(self, message: Message) -> None:
        self.messages.append(message)

    async def handle_batch(self, messages: Sequence[Message]) -> None:
        self.messages.extend(messages)

    def values(self, partition: int | None = None) -> list[bytes | None]:
        return [m.value for m in self.messages if partition is None or m.partition == partition]


@asynccontextmanager
async def running(work: Callable[[asyncio.Event], Awaitable[None]]) -> AsyncIterator[asyncio.Task[None]]:
    """`work(stop)` in the background; asked to stop at the end, and its errors raised."""
    stop = asyncio.Event()
    task = asyncio.ensure_future(work(stop))
    try:
        yield task
    finally:
        stop.set()
        async with asyncio.timeout(TIMEOUT_S):
            await task


@asynccontextmanager
async def serial(
    settings: KafkaSettings,
    topic: str,
    handle: Callable[[Message], Awaitable[None]],
    *,
    window: int = 100,
    concurrency: int = 8,
    retry: RetrySettings = FAST,
    on_dead: OnDead | None = None,
) -> AsyncIterator[Consumer]:
    """`run_serial` over a topic."""
    consumer = Consumer(settings, [topic], settings.group(GROUP), window=window)
    dead_letters = Producer(settings)
    try:
        async with running(
            lambda stop: run_serial(
                consumer, handle, dead_letters, concurrency=concurrency, retry=retry, stop=stop, on_dead=on_dead
            )
        ):
            yield consumer
    finally:
        await dead_letters.close()


@asynccontextmanager
async def batched(
    settings: KafkaSettings,
    topic: str,
    handle: HandleBatch,
    *,
    size: int = 8,
    linger_s: float = 0.05,
    in_flight: int = 2,
    first_in_flight: int = 0,
    weigh: Callable[[Message], int] = lambda message: 1,
    retry: RetrySettings = FAST,
    on_dead: OnDead | None = None,
) -> AsyncIterator[Consumer]:
    """`run_batched` over a topic."""
    consumer = Consumer(settings, [topic], settings.group(GROUP), window=100)
    dead_letters = Producer(settings)
    try:
        async with running(
            lambda stop: run_batched(
                consumer,
                handle,
                dead_letters,
                size=size,
                linger_s=linger_s,
                in_flight=in_flight,
                first_in_flight=first_in_flight,
                weigh=weigh,
                retry=retry,
                stop=stop,
                on_dead=on_dead,
            )
        ):
            yield consumer
    finally:
        await dead_letters.close()
