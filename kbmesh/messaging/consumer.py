"""An at-least-once consumer: messages may finish in any order, offsets are committed only behind finished ones."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Mapping, Set
from contextlib import asynccontextmanager
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
)

from kbmesh.messaging.client import pace, stop_hard
from kbmesh.messaging.delivery import Delivery, Message, Partition
from kbmesh.messaging.fair_queue import FairQueue
from kbmesh.messaging.settings import KafkaSettings

log = structlog.get_logger(__name__)

POLL_MS: Final = 200
POLL_FULL_MS: Final = 10
COMMIT_INTERVAL_S: Final = 0.5
DRAIN_TIMEOUT_S: Final = 20
REBALANCE_TIMEOUT_S: Final = DRAIN_TIMEOUT_S + 10
CLOSE_TIMEOUT_S: Final = 10
RECONNECT_MIN_S: Final = 0.5
RECONNECT_MAX_S: Final = 15.0


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
        self._queue = FairQueue[Delivery](lambda delivery: delivery.message.line)  # bounded by the windows
        self._partitions: dict[TopicPartition, Partition] = {}
        self._inner: AIOKafkaConsumer | None = None
        self._settled = asyncio.Event()
        self._committing = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Polls in the background; on exit commits what is done and leaves the group. Can be entered once.

        An error that is no outage ends the body too (ExceptionGroup), so that nobody waits for messages in vain.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                polling = tasks.create_task(self._run(), name=f"consumer {self.group}")
                try:
                    yield
                finally:
                    polling.cancel()
        finally:
            if self._closing is not None:
                await self._closing

    async def next(self, *, hold: bool = False, first: bool = False) -> Delivery:
        """The next message; waits for one. Keys take turns, those of one key come in order.

        With `hold` the others of its key wait until `release`. With `first` it is one before which none of its key
        waited.
        """
        return await self._queue.get(hold=hold, first=first)

    def release(self, delivery: Delivery) -> None:
        """Lets the messages go on that wait behind one taken with `hold`."""
        self._queue.release(delivery)

    def put_back(self, delivery: Delivery) -> None:
        """Makes what was just taken, without `hold`, the next message again."""
        self._queue.put_back(delivery)

    async def _run(self) -> None:
        backoff_s = RECONNECT_MIN_S
        while True:
            self._inner = inner = self._new_client()
            try:
                # Joining takes as long as the slowest member needs to let go of its partitions.
                async with asyncio.timeout(REBALANCE_TIMEOUT_S + self._settings.request_timeout_s):
                    await inner.start()
                pace(inner)
                log.info("consumer_joined", group=self.group, topics=self._topics)
                backoff_s = RECONNECT_MIN_S
                await self._poll_for_ever(inner)
            except (KafkaError, OSError, TimeoutError) as error:
                log.warning("consumer_reconnects", group=self.group, error=type(error).__name__)
                self.connected = False
                await self._release(inner, list(self._partitions), drain=True)
            finally:
                self.connected = False
                # In a task of its own: a client that is closed by half goes on as a member that does nothing.
                self._closing = asyncio.create_task(self._close(inner))
                await asyncio.shield(self._closing)
            await asyncio.sleep(backoff_s * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
            backoff_s = min(backoff_s * 2, RECONNECT_MAX_S)

    def _new_client(self) -> AIOKafkaConsumer:
        session_timeout_ms = int(self._settings.session_timeout_s * 1000)
        inner = AIOKafkaConsumer(
            group_id=self.group,
            group_instance_id=self._settings.group_instance_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_poll_records=self._window,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=session_timeout_ms // 10,
            max_poll_interval_ms=int(self._settings.max_poll_interval_s * 1000),
            rebalance_timeout_ms=REBALANCE_TIMEOUT_S * 1000,
            **self._settings.client_options() | {"request_timeout_ms": 2 * REBALANCE_TIMEOUT_S * 1000},
        )
        inner.subscribe(self._topics, listener=self)
        return inner

    async def _poll_for_ever(self, inner: AIOKafkaConsumer) -> None:
        loop = asyncio.get_running_loop()
        last_commit = last_probe = loop.time()
        behind: dict[TopicPartition, int] = {}
        while True:
            full = {tp for tp, known in self._partitions.items() if known.offsets.in_flight >= self._window}
            records = await self._poll(inner, full)
            self.connected = True
            for topic_partition, batch in records.items():
                self._deliver(topic_partition, batch)
            if loop.time() - last_commit >= COMMIT_INTERVAL_S:
                await self._commit(inner, self._partitions)
                last_commit = loop.time()
            for topic_partition in full:
                behind.pop(topic_partition, None)
            if loop.time() - last_probe >= self._settings.probe_interval_s:
                behind = await self._probe(inner, full, behind)
                last_probe = loop.time()

    async def _poll(
        self, inner: AIOKafkaConsumer, full: Set[TopicPartition]
    ) -> Mapping[TopicPartition, Iterable[ConsumerRecord]]:
        """New records of all partitions but the full ones.

        Those are not paused, which would throw away what the client has fetched, and fetch it again.
        """
        assigned = inner.assignment()
        free = assigned - full
        if assigned and not free:
            with inner._subscription.fetch_context():  # counts as polling
                await asyncio.sleep(POLL_FULL_MS / 1000)
            return {}
        # Returns no sooner than a rebalance ends, whatever its own timeout.
        async with asyncio.timeout(2 * REBALANCE_TIMEOUT_S):
            timeout_ms = POLL_FULL_MS if full else POLL_MS
            polled: Mapping[TopicPartition, Iterable[ConsumerRecord]] = await inner.getmany(
                *free, timeout_ms=timeout_ms, max_records=self._window
            )
            return polled

    async def _probe(
        self, inner: AIOKafkaConsumer, full: Set[TopicPartition], behind: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Positions of the partitions that have more to read, the full ones left out.

        Without it an outage goes unseen, as the client just returns no records, and now and then it reads no
        more after a broker has come back.

        Raises:
            KafkaError, TimeoutError: the broker does not answer, a partition has not moved since `behind`, or the
                client has given up.
        """
        if inner._coordinator._coordination_task.done():
            raise KafkaError("the client has stopped taking part in its group")
        assigned = inner.assignment()
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                ends = await inner.end_offsets(assigned) if assigned else {}
                positions = {tp: await inner.position(tp) for tp in assigned - full}
        except IllegalStateError:
            return {}  # a rebalance came between
        lagging = {tp: position for tp, position in positions.items() if position < ends[tp]}
        if any(behind.get(tp) == position for tp, position in lagging.items()):
            raise KafkaTimeoutError("the client has stopped reading")
        return lagging

    def _deliver(self, topic_partition: TopicPartition, records: Iterable[ConsumerRecord]) -> None:
        partition = self._partitions.setdefault(topic_partition, Partition())
        for record in records:
            partition.offsets.delivered(record.offset)
            self._queue.put(Delivery(_message(record), partition, self._settled))

    async def _commit(self, inner: AIOKafkaConsumer, partitions: Mapping[TopicPartition, Partition]) -> None:
        async with self._committing:
            trackers = {topic_partition: partition.offsets for topic_partition, partition in partitions.items()}
            offsets = {
                topic_partition: offset
                for topic_partition, tracker in trackers.items()
                if (offset := tracker.committable()) is not None
            }
            if not offsets:
                return
            member_id = inner._coordinator.member_id
            try:
                async with asyncio.timeout(self._settings.request_timeout_s):
                    await inner.commit(offsets)
            except (CommitFailedError, IllegalStateError) as error:
                # The partition has moved on: its new owner will see these messages again.
                log.info("consumer_commit_refused", group=self.group, error=type(error).__name__)
                if isinstance(error.__cause__, IllegalGenerationError):
                    # The client would join again as somebody else, and the group wait long for who it was before.
                    inner._coordinator.member_id = member_id
            else:
                for topic_partition, offset in offsets.items():
                    trackers[topic_partition].committed(offset)

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
        self._queue.retain(Delivery.begin)
        if drain:
            await self._drain(released.values())
        if inner is not None:
            try:
                await self._commit(inner, released)
            except (KafkaError, OSError, TimeoutError) as error:
                log.warning("consumer_commit_failed", group=self.group, error=type(error).__name__)

    async def _drain(self, partitions: Iterable[Partition]) -> None:
        """Waits, bounded, until what had been begun of these partitions is done."""
        waiting = list(partitions)
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                while any(partition.offsets.in_flight for partition in waiting):
                    self._settled.clear()
                    await self._settled.wait()
        except TimeoutError:
            log.warning("consumer_drain_timed_out", group=self.group)

    async def _close(self, inner: AIOKafkaConsumer) -> None:
        # stop() does not call the listener.
        await self._release(inner, list(self._partitions), drain=False)
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await inner.stop()
        except (KafkaError, OSError, TimeoutError, asyncio.CancelledError) as error:
            # The client cancels tasks of its own and then trips over that.
            log.warning("consumer_stopped_hard", group=self.group, error=type(error).__name__)
            await stop_hard(inner, timeout_s=CLOSE_TIMEOUT_S)


def _message(record: ConsumerRecord) -> Message:
    return Message(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers={name: value or b"" for name, value in record.headers},
    )
