import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from kbmesh.errors import Unavailable
from kbmesh.messaging.settings import KafkaSettings

log = structlog.get_logger(__name__)

CLOSE_TIMEOUT_S: Final = 10
SENDER_TIMEOUT_S: Final = 2
MAX_REQUEST_BYTES: Final = 2 * 1024 * 1024
"""More than a broker takes by default: a dead letter is its message, which may be the largest, and headers."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]


class Producer:
    """An idempotent producer (acks from all replicas) that never waits for ever.

    aiokafka's own producer hangs in `send_and_wait` and `stop` when the broker is gone, and stays broken after
    an OutOfOrderSequenceNumber. So every wait here is bounded, and after any failure the inner producer is
    thrown away and the next `send` starts a new one.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._inner: AIOKafkaProducer | None = None
        self._lock = asyncio.Lock()

    async def send(self, messages: Sequence[Outgoing]) -> list[bool]:
        """Publishes in order; says for each message whether the brokers have acknowledged it.

        False means unknown: the message may or may not be in the topic. Messages of one key that follow an
        unacknowledged one may have been acknowledged.

        Raises:
            Unavailable: no broker could be reached; nothing was sent.
        """
        if not messages:
            return []
        async with self._lock:
            inner = self._inner or await self._start()
            futures: list[asyncio.Future[object]] = []
            try:
                async with asyncio.timeout(self._settings.request_timeout_s):
                    for message in messages:
                        headers = list(message.headers.items())
                        sent = await inner.send(message.topic, message.value, key=message.key, headers=headers)
                        futures.append(sent)
                    await asyncio.wait(futures)
            except (KafkaError, OSError, TimeoutError) as error:
                log.warning("kafka_send_failed", error=type(error).__name__, messages=len(messages))
            acknowledged = [_succeeded(future) for future in futures]
            acknowledged += [False] * (len(messages) - len(futures))
            if not all(acknowledged):
                await self._discard()
            return acknowledged

    async def _start(self) -> AIOKafkaProducer:
        inner = AIOKafkaProducer(
            acks="all",
            enable_idempotence=True,
            compression_type="lz4",
            linger_ms=5,
            max_request_size=MAX_REQUEST_BYTES,
            **self._settings.client_options(),
        )
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                await inner.start()
            self._inner = inner
        except (KafkaError, OSError, TimeoutError) as error:
            raise Unavailable("no Kafka broker answers", code="broker_unavailable") from error
        finally:
            if self._inner is None:
                await _stop(inner)
        return inner

    async def _discard(self) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            await _stop(inner)

    async def close(self) -> None:
        async with self._lock:
            await self._discard()


async def _stop(inner: AIOKafkaProducer) -> None:
    # Its own stop() waits for batches that a dead broker will never take, and it must not retry what is failed.
    sender = inner._sender.sender_task
    while sender is not None and not sender.done():
        sender.cancel()  # the first one lets requests under way end, the second does not
        await asyncio.wait([sender], timeout=SENDER_TIMEOUT_S)
    inner._message_accumulator.fail_all(KafkaError("producer discarded"))
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await inner.stop()
    except (KafkaError, OSError, TimeoutError) as error:
        log.warning("kafka_producer_not_stopped", error=type(error).__name__)


def _succeeded(future: asyncio.Future[object]) -> bool:
    if not future.done():
        future.add_done_callback(lambda late: late.cancelled() or late.exception())
        return False
    return not future.cancelled() and future.exception() is None
