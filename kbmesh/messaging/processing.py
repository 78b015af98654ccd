"""What to do with deliveries: run them, try again, or put them aside, and never lose one.

An outage (Unavailable, a timeout, a broken connection) is retried for as long as it lasts, with the offset kept.
A message that fails otherwise is tried `attempts` times and then dead-lettered; a handler of batches that could
handle the most part of one says itself what of it is dead. When dead letters come in a row,
something systemic is wrong, and the topic is not drained into its dead letters: the message at hand is then
retried like in an outage until one succeeds.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from pydantic import BaseModel, ConfigDict

from kbmesh.errors import TRANSIENT, KbmeshError, Poison
from kbmesh.messaging.consumer import Consumer
from kbmesh.messaging.delivery import Delivery, Message
from kbmesh.messaging.producer import Outgoing, Producer
from kbmesh.messaging.topics import Topics
from kbmesh.observability import tracing

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Dead:
    """A message for the dead letters, narrowed to what failed of it where the rest could be handled."""

    message: Message
    error: Exception


Handle = Callable[[Message], Awaitable[None]]
HandleBatch = Callable[[Sequence[Message]], Awaitable[Sequence[Dead] | None]]
OnDead = Callable[[Message, Exception], Awaitable[None]]


class RetrySettings(BaseModel):
    """Times in seconds."""

    model_config = ConfigDict(frozen=True)

    attempts: int = 3
    backoff_min_s: float = 0.2
    backoff_max_s: float = 30
    dead_letters_in_a_row: int = 20
    stop_timeout_s: float = 20
    """How long work in flight may go on after a stop was asked for."""


class _Processor:
    """Runs handlers over messages of one consumer, with retries and the dead letter."""

    def __init__(
        self, dead_letters: Producer, retry: RetrySettings, stop: asyncio.Event, on_dead: OnDead | None
    ) -> None:
        self._dead_letters = dead_letters
        self._retry = retry
        self._stop = stop
        self._on_dead = on_dead
        self._dead_in_a_row = 0

    async def process(
        self, delivery: Delivery, handle: Callable[[Message], Awaitable[Sequence[Dead] | None]]
    ) -> None:
        """Returns when the message has been handled or dead-lettered, or is to be left because of a stop."""
        message = delivery.message
        attempts = 0
        async for _ in self._backing_off():
            if not delivery.begin():
                return
            try:
                with tracing.consuming(message.headers, f"process {message.topic}"):
                    dead = await handle(message)
            except TRANSIENT as error:
                log.warning("dependency_unavailable", **message.ids, error=_name(error))
            except Exception as error:
                attempts += 1
                log.warning("message_failed", **message.ids, error=_name(error), attempts=attempts, exc_info=True)
                if not isinstance(error, Poison) and attempts < self._retry.attempts:
                    continue
                if self._breaker_is_open(message):
                    continue
                if await self._bury(message, error, attempts):
                    delivery.done()
                return
            else:
                if await self._settle([delivery], dead or ()):
                    return

    async def process_batch(self, deliveries: Sequence[Delivery], handle: HandleBatch) -> None:
        """As `process`, for many at once; if that fails they are handled one by one: only the bad one suffers."""
        async for _ in self._backing_off():
            deliveries = [delivery for delivery in deliveries if delivery.begin()]
            if not deliveries:
                return
            try:
                dead = await handle([delivery.message for delivery in deliveries])
            except TRANSIENT as error:
                log.warning("dependency_unavailable", messages=len(deliveries), error=_name(error))
            except Exception as error:
                log.info("batch_taken_apart", messages=len(deliveries), error=_name(error))
                for delivery in deliveries:
                    await self.process(delivery, lambda message: handle([message]))
                return
            else:
                if await self._settle(deliveries, dead or ()):
                    return

    async def _settle(self, deliveries: Sequence[Delivery], dead: Sequence[Dead]) -> bool:
        """Ends what was handled, all but `dead` with success. False: try again, dead letters come in a row."""
        if len(dead) < len(deliveries):
            self._dead_in_a_row = 0
        if dead and self._breaker_is_open(dead[0].message):
            return False
        for one in dead:
            if not await self._bury(one.message, one.error, attempts=1):
                return True
        for delivery in deliveries:
            delivery.done()
        return True

    def _breaker_is_open(self, message: Message) -> bool:
        if self._dead_in_a_row < self._retry.dead_letters_in_a_row:
            return False
        log.error("dead_letter_breaker_open", **message.ids, in_a_row=self._dead_in_a_row)
        return True

    async def _backing_off(self) -> AsyncIterator[None]:
        """Yields for each try, with growing pauses between, until `stop`."""
        delay = self._retry.backoff_min_s
        yield
        while not self._stop.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), delay * random.uniform(0.5, 1))  # noqa: S311 - jitter
                return
            yield
            delay = min(delay * 2, self._retry.backoff_max_s)

    async def _bury(self, message: Message, error: Exception, attempts: int) -> bool:
        self._dead_in_a_row += 1
        async for _ in self._backing_off():
            try:
                await self._tell(message, error)
                if await self._dead_letters.send([_dead_letter(message, error, attempts)]) == [True]:
                    log.error("message_dead_lettered", **message.ids, error=_name(error))
                    return True
            except TRANSIENT as outage:
                log.warning("dependency_unavailable", **message.ids, error=_name(outage))
        return False

    async def _tell(self, message: Message, error: Exception) -> None:
        if self._on_dead is None:
            return
        try:
            await self._on_dead(message, error)
        except TRANSIENT:
            raise
        except Exception as failure:
            # Ending here would end every restart at the same message.
            log.exception("on_dead_failed", **message.ids, error=_name(failure))


def _name(error: Exception) -> str:
    return error.code if isinstance(error, KbmeshError) else type(error).__name__


def _dead_letter(message: Message, error: Exception, attempts: int) -> Outgoing:
    """The message, with the story of its failure beside it."""
    headers = {
        **message.headers,
        "kbmesh-dlq-topic": message.topic.encode(),
        "kbmesh-dlq-partition": str(message.partition).encode(),
        "kbmesh-dlq-offset": str(message.offset).encode(),
        "kbmesh-dlq-timestamp-ms": str(message.timestamp_ms).encode(),
        "kbmesh-dlq-error": _name(error).encode(),
        "kbmesh-dlq-attempts": str(attempts).encode(),
        "kbmesh-dlq-failed-at": datetime.now(UTC).isoformat().encode(),
    }
    # Kafka takes a message that has neither key nor value, its Python client does not.
    value = b"" if message.key is None and message.value is None else message.value
    return Outgoing(Topics.dead_letter(message.topic), message.key, value, headers)


async def run_serial(
    consumer: Consumer,
    handle: Handle,
    dead_letters: Producer,
    *,
    concurrency: int,
    retry: RetrySettings,
    stop: asyncio.Event,
    on_dead: OnDead | None = None,
) -> None:
    """Handles messages of one key in order, `concurrency` of different keys at once, until `stop`.

    Messages without a key have an order within their partition. Keys take turns: none waits behind the backlog of
    another.
    """
    processor = _Processor(dead_letters, retry, stop, on_dead)
    slots = asyncio.Semaphore(concurrency)

    async def work(delivery: Delivery) -> None:
        try:
            await processor.process(delivery, handle)
        finally:
            consumer.release(delivery)
            slots.release()

    async with consumer.running(), _bounded_tasks(retry.stop_timeout_s) as tasks:
        while (delivery := await _next(consumer, slots, stop, hold=True)) is not None:
            tasks.create_task(work(delivery))


async def run_batched(
    consumer: Consumer,
    handle: HandleBatch,
    dead_letters: Producer,
    *,
    size: int,
    linger_s: float,
    in_flight: int,
    weigh: Callable[[Message], int],
    retry: RetrySettings,
    stop: asyncio.Event,
    first_in_flight: int = 0,
    on_dead: OnDead | None = None,
) -> None:
    """Handles messages in batches across keys and partitions, until `stop`.

    A batch is closed before its weight would exceed `size`, or `linger_s` after its first message. Up to
    `in_flight` batches run at once, so that messages of one key may be handled out of order. A batch is gathered
    no sooner than it can run, from keys in turn: none waits behind the backlog of another. `first_in_flight` more
    batches hold nothing but first messages of keys, which do not even wait for a batch of others to end.
    """
    processor = _Processor(dead_letters, retry, stop, on_dead)

    async def fill(batch: list[Delivery], *, first: bool) -> None:
        weight = weigh(batch[0].message)
        with suppress(TimeoutError):
            async with asyncio.timeout(linger_s):
                while weight < size:
                    delivery = await consumer.next(first=first)
                    weight += weigh(delivery.message)
                    if weight > size:
                        consumer.put_back(delivery)
                    else:
                        batch.append(delivery)

    async def run(tasks: asyncio.TaskGroup, slots: asyncio.Semaphore, *, first: bool) -> None:
        async def work(batch: list[Delivery]) -> None:
            try:
                await processor.process_batch(batch, handle)
            finally:
                slots.release()

        while (delivery := await _next(consumer, slots, stop, first=first)) is not None:
            batch = [delivery]
            await fill(batch, first=first)
            tasks.create_task(work(batch))

    async with consumer.running(), _bounded_tasks(retry.stop_timeout_s) as tasks:
        tasks.create_task(run(tasks, asyncio.Semaphore(first_in_flight), first=True))
        await run(tasks, asyncio.Semaphore(in_flight), first=False)


@asynccontextmanager
async def _bounded_tasks(timeout_s: float) -> AsyncIterator[asyncio.TaskGroup]:
    """Tasks that have `timeout_s` to finish once the body is left; what is then unfinished is redelivered."""
    try:
        async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as tasks:
            yield tasks
            limit.reschedule(asyncio.get_running_loop().time() + timeout_s)
    except TimeoutError:
        log.warning("work_cut_short", timeout_s=timeout_s)


async def _next(
    consumer: Consumer, slots: asyncio.Semaphore, stop: asyncio.Event, *, hold: bool = False, first: bool = False
) -> Delivery | None:
    """The next message together with a slot to handle it in, or None once `stop` is set."""

    async def take() -> Delivery:
        await slots.acquire()
        return await consumer.next(hold=hold, first=first)

    delivery = asyncio.ensure_future(take())
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([delivery, stopped], return_when=asyncio.FIRST_COMPLETED)
        return delivery.result() if delivery.done() and not stop.is_set() else None
    finally:
        delivery.cancel()
        stopped.cancel()
