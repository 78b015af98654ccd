"""An at-least-once consumer: messages may finish in any order, offsets are committed only behind finished ones."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from kbmesh.messaging.offsets import OffsetTracker
from kbmesh.messaging.settings import KafkaSettings

log = structlog.get_logger(__name__)

POLL_TIMEOUT_MS: Final = 200
COMMIT_INTERVAL_S: Final = 0.5
DRAIN_TIMEOUT_S: Final = 20
CLOSE_TIMEOUT_S: Final = 10
RECONNECT_MIN_S: Final = 0.5
RECONNECT_MAX_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Message:
    """A record as it came off the topic; `timestamp_ms` since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]

    @property
    def ids(self) -> dict[str, object]:
        """What a log line says of the message."""
        return {"topic": self.topic, "partition": self.partition, "offset": self.offset}


@dataclass(slots=True, eq=False)
class _Partition:
    offsets: OffsetTracker = field(default_factory=OffsetTracker)
    revoked: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """A message together with the duty to say when its effects are durable."""

    message: Message
    _partition: _Partition
    _settled: asyncio.Event

    def begin(self) -> bool:
        """Ask before working on it. False: another member has the partition now, leave the message to it."""
        if self._partition.revoked:
            self._partition.offsets.abandoned(self.message.offset)
            self._settled.set()
            return False
        return True

    def done(self) -> None:
        """Call once, after the transaction that holds the message's effects has committed."""
        self._partition.offsets.finished(self.message.offset)
        self._settled.set()


class Consumer(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Membership in a consumer group; each partition has about `window` messages between delivery and `done`.

    Polling goes on while messages are worked on, so that slow work never costs the membership. When the broker
    fails, the inner client is replaced (an aiokafka consumer cannot be restarted) and the group rejoined.
    """

    def __init__(self, settings: KafkaSettings, topics: Iterable[str], group: str, *, window: int) -> None:
        self.group = group
        self.connected = False
        """Whether the group is joined and the last poll succeeded."""
        self._settings = settings
        self._topics = tuple(topics)
        self._window = window
        self._queue: asyncio.Queue[Delivery] = asyncio.Queue()  # bounded by the windows
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._inner: AIOKafkaConsumer | None = None
        self._settled = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Polls in the background; on exit commits what is done and leaves the group."""
        task = asyncio.create_task(self._run(), name=f"consumer {self.group}")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def next(self) -> Delivery:
        """The next message; waits for one."""
        return await self._queue.get()

    async def _run(self) -> None:
        backoff_s = RECONNECT_MIN_S
        while True:
            self._inner = inner = self._new_client()
            try:
                async with asyncio.timeout(self._settings.request_timeout_s):
                    await inner.start()
                log.info("consumer_joined", group=self.group, topics=self._topics)
                backoff_s = RECONNECT_MIN_S
                await self._poll_for_ever(inner)
            except (KafkaError, OSError, TimeoutError) as error:
                log.warning("consumer_reconnects", group=self.group, error=type(error).__name__)
                self.connected = False
                await self._release(inner, list(self._partitions), drain=True)
            finally:
                self.connected = False
                # stop() does not call the listener.
                await self._release(inner, list(self._partitions), drain=False)
                await self._stop(inner)
            await asyncio.sleep(backoff_s * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
            backoff_s = min(backoff_s * 2, RECONNECT_MAX_S)

    def _new_client(self) -> AIOKafkaConsumer:
        session_timeout_ms = int(self._settings.session_timeout_s * 1000)
        inner = AIOKafkaConsumer(
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_poll_records=self._window,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=session_timeout_ms // 10,
            max_poll_interval_ms=int(self._settings.max_poll_interval_s * 1000),
            rebalance_timeout_ms=int((DRAIN_TIMEOUT_S + 10) * 1000),
            **self._settings.client_options(),
        )
        inner.subscribe(self._topics, listener=self)
        return inner

    async def _poll_for_ever(self, inner: AIOKafkaConsumer) -> None:
        loop = asyncio.get_running_loop()
        last_commit = loop.time()
        while True:
            # Said anew in each round: a rebalance silently resumes paused partitions.
            full = {
                tp for tp, partition in self._partitions.items() if partition.offsets.in_flight >= self._window
            }
            assigned = inner.assignment()
            inner.pause(*(full & assigned))
            inner.resume(*((inner.paused() & assigned) - full))
            records = await inner.getmany(timeout_ms=POLL_TIMEOUT_MS, max_records=self._window)
            self.connected = True
            for topic_partition, batch in records.items():
                self._deliver(topic_partition, batch)
            if loop.time() - last_commit >= COMMIT_INTERVAL_S:
                await self._commit(inner, self._partitions)
                last_commit = loop.time()

    def _deliver(self, topic_partition: TopicPartition, records: Iterable[ConsumerRecord]) -> None:
        partition = self._partitions.setdefault(topic_partition, _Partition())
        for record in records:
            partition.offsets.delivered(record.offset)
            self._queue.put_nowait(Delivery(_message(record), partition, self._settled))

    async def _commit(self, inner: AIOKafkaConsumer, partitions: Mapping[TopicPartition, _Partition]) -> None:
        offsets = {
            topic_partition: offset
            for topic_partition, partition in partitions.items()
            if (offset := partition.offsets.committable()) is not None
        }
        if not offsets:
            return
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                await inner.commit(offsets)
        except (CommitFailedError, IllegalStateError) as error:
            # The partition has moved on: its new owner will see these messages again.
            log.info("consumer_commit_refused", group=self.group, error=type(error).__name__)
        else:
            for topic_partition, offset in offsets.items():
                partitions[topic_partition].offsets.committed(offset)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._release(self._inner, revoked, drain=True)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        log.info("consumer_assigned", group=self.group, partitions=len(list(assigned)))

    async def _release(
        self, inner: AIOKafkaConsumer | None, revoked: Iterable[TopicPartition], *, drain: bool
    ) -> None:
        released = {tp: self._partitions.pop(tp) for tp in set(revoked) if tp in self._partitions}
        for partition in released.values():
            partition.revoked = True
        self._drop_queued()
        if drain:
            await self._drain(released.values())
        if inner is not None:
            try:
                await self._commit(inner, released)
            except (KafkaError, OSError, TimeoutError) as error:
                log.warning("consumer_commit_failed", group=self.group, error=type(error).__name__)

    def _drop_queued(self) -> None:
        for _ in range(self._queue.qsize()):
            delivery = self._queue.get_nowait()
            if delivery.begin():
                self._queue.put_nowait(delivery)

    async def _drain(self, partitions: Iterable[_Partition]) -> None:
        """Waits, bounded, until what had been begun of these partitions is done."""
        waiting = list(partitions)
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                while any(partition.offsets.in_flight for partition in waiting):
                    self._settled.clear()
                    await self._settled.wait()
        except TimeoutError:
            log.warning("consumer_drain_timed_out", group=self.group)

    async def _stop(self, inner: AIOKafkaConsumer) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await inner.stop()
        except (KafkaError, OSError, TimeoutError) as error:
            log.warning("consumer_not_stopped", group=self.group, error=type(error).__name__)


def _message(record: ConsumerRecord) -> Message:
    return Message(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=dict(record.headers),
    )
