"""What becomes of messages that fail: outages are waited for, bad messages put aside, nothing is lost."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kbmesh.errors import Poison, Unavailable
from kbmesh.messaging import Dead, KafkaSettings, Message, Topics
from kbmesh.observability import tracing
from tests.support.consuming import FAST, Seen, batched, committed, eventually, publish, serial, until_committed
from tests.support.records import read

pytestmark = pytest.mark.broker


@pytest.fixture
def topic(kafka_settings: KafkaSettings) -> str:
    return kafka_settings.topics.records


class Failing(Seen):
    """Fails at some values, as long as they are in `errors`; counts all tries."""

    def __init__(self, errors: dict[bytes, Exception]) -> None:
        super().__init__()
        self.errors = errors
        self.tries: list[bytes | None] = []

    async def handle(self, message: Message) -> None:
        self.tries.append(message.value)
        if error := self.errors.get(message.value or b""):
            raise error
        await super().handle(message)

    async def handle_batch(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.tries.append(message.value)
            if error := self.errors.get(message.value or b""):
                raise error
        await super().handle_batch(messages)


@pytest.mark.parametrize("error", [Unavailable("down"), ConnectionResetError(), TimeoutError()], ids=repr)
async def test_an_outage_is_retried_for_as_long_as_it_lasts_and_the_offset_kept(
    kafka_settings: KafkaSettings, topic: str, error: Exception
) -> None:
    await publish(kafka_settings, topic, [b"a", b"b", b"c"])
    handler = Failing({b"b": error})
    async with serial(kafka_settings, topic, handler.handle):
        await eventually(lambda: handler.tries.count(b"b") > FAST.attempts)
        await until_committed(kafka_settings, topic, {0: 1})
        handler.errors.clear()
        await eventually(lambda: handler.values() == [b"a", b"b", b"c"])
    assert await committed(kafka_settings, topic) == {0: 3}


async def test_a_message_that_keeps_failing_goes_to_the_dead_letters_unchanged(
    kafka_settings: KafkaSettings, topic: str
) -> None:
    headers = [("ce_id", b"42"), ("traceparent", b"00-ab-cd-01"), ("bytes", b"\xff")]
    await publish(kafka_settings, topic, [b"good"], partition=1, key=b"\xfek")
    await publish(kafka_settings, topic, [b"\x00bad\xff"], partition=1, key=b"\xfek", headers=headers)
    await publish(kafka_settings, topic, [b"after"], partition=1, key=b"\xfek")
    handler = Failing({b"\x00bad\xff": ZeroDivisionError("secret text")})
    dead: list[tuple[int, str]] = []

    async def on_dead(message: Message, error: Exception) -> None:
        dead.append((message.offset, type(error).__name__))

    async with serial(kafka_settings, topic, handler.handle, on_dead=on_dead):
        await eventually(lambda: handler.values() == [b"good", b"after"])

    assert handler.tries == [b"good", *[b"\x00bad\xff"] * FAST.attempts, b"after"]
    assert dead == [(1, "ZeroDivisionError")]
    assert await committed(kafka_settings, topic) == {1: 3}
    [record] = await read(kafka_settings, Topics.dead_letter(topic), 1)
    assert (record.key, record.value) == (b"\xfek", b"\x00bad\xff")
    found = dict(record.headers)
    assert {name: found[name] for name, _ in headers} == dict(headers)
    assert found["kbmesh-dlq-topic"] == topic.encode()
    assert (found["kbmesh-dlq-partition"], found["kbmesh-dlq-offset"]) == (b"1", b"1")
    assert (found["kbmesh-dlq-error"], found["kbmesh-dlq-attempts"]) == (b"ZeroDivisionError", b"3")
    assert int(found["kbmesh-dlq-timestamp-ms"]) > 0
    assert found["kbmesh-dlq-failed-at"].endswith(b"+00:00")
    assert not any(b"secret" in value for value in found.values())


async def test_poison_is_not_tried_twice(kafka_settings: KafkaSettings, topic: str) -> None:
    await publish(kafka_settings, topic, [b"bad", b"good"])
    handler = Failing({b"bad": Poison("no", code="bad_payload")})
    async with serial(kafka_settings, topic, handler.handle):
        await eventually(lambda: handler.values() == [b"good"])
    assert handler.tries == [b"bad", b"good"]
    [record] = await read(kafka_settings, Topics.dead_letter(topic), 1)
    assert dict(record.headers)["kbmesh-dlq-error"] == b"bad_payload"


async def test_an_empty_message_and_a_tombstone_can_be_put_aside_too(
    kafka_settings: KafkaSettings, topic: str
) -> None:
    await publish(kafka_settings, topic, [b""], key=None)
    await publish(kafka_settings, topic, [None], key=b"tombstone")
    handler = Failing({b"": Poison("no")})
    async with serial(kafka_settings, topic, handler.handle):
        await until_committed(kafka_settings, topic, {0: 2})
    records = await read(kafka_settings, Topics.dead_letter(topic), 2)
    assert {(record.key, record.value) for record in records} == {(None, b""), (b"tombstone", None)}


async def test_the_largest_message_a_broker_takes_fits_into_the_dead_letters(
    kafka_settings: KafkaSettings, topic: str
) -> None:
    largest = b"0" * 1_048_000
    await publish(kafka_settings, topic, [largest])
    async with serial(kafka_settings, topic, Failing({largest: Poison("no")}).handle):
        await until_committed(kafka_settings, topic, {0: 1})
    [record] = await read(kafka_settings, Topics.dead_letter(topic), 1)
    assert record.value == largest


async def test_one_bad_message_in_a_batch_suffers_alone(kafka_settings: KafkaSettings, topic: str) -> None:
    values = [str(n).encode() for n in range(8)]
    await publish(kafka_settings, topic, values)
    handler = Failing({b"5": ValueError()})
    async with batched(kafka_settings, topic, handler.handle_batch, size=8, linger_s=5):
        await until_committed(kafka_settings, topic, {0: 8})
    assert sorted(set(handler.values()), key=str) == [value for value in values if value != b"5"]
    assert len(handler.values()) == 7
    [record] = await read(kafka_settings, Topics.dead_letter(topic), 1)
    assert record.value == b"5"


async def test_what_a_batch_names_as_dead_is_put_aside_and_the_rest_is_done(
    kafka_settings: KafkaSettings, topic: str
) -> None:
    await publish(kafka_settings, topic, [str(n).encode() for n in range(8)])
    handled: list[int] = []
    told: list[bytes | None] = []

    async def handle(messages: Sequence[Message]) -> list[Dead]:
        handled.append(len(messages))
        return [Dead(replace(m, value=b"part of 5"), ValueError("secret")) for m in messages if m.value == b"5"]

    async def on_dead(message: Message, error: Exception) -> None:
        told.append(message.value)

    async with batched(kafka_settings, topic, handle, size=8, linger_s=5, on_dead=on_dead):
        await until_committed(kafka_settings, topic, {0: 8})
    assert (handled, told) == ([8], [b"part of 5"])
    [record] = await read(kafka_settings, Topics.dead_letter(topic), 1)
    headers = dict(record.headers)
    assert (record.key, record.value, headers["kbmesh-dlq-offset"]) == (b"key", b"part of 5", b"5")
    assert (headers["kbmesh-dlq-error"], headers["kbmesh-dlq-attempts"]) == (b"ValueError", b"1")


async def test_what_batches_name_as_dead_counts_as_dead_letters_in_a_row(
    kafka_settings: KafkaSettings, topic: str
) -> None:
    await publish(kafka_settings, topic, [str(n).encode() for n in range(6)])
    healed = False
    tries = 0

    async def handle(messages: Sequence[Message]) -> list[Dead]:
        nonlocal tries
        tries += 1
        return [] if healed else [Dead(message, ValueError()) for message in messages]

    retry = FAST.model_copy(update={"dead_letters_in_a_row": 4})
    async with batched(kafka_settings, topic, handle, size=1, in_flight=1, retry=retry):
        await eventually(lambda: tries >= 4 + 5)
        await until_committed(kafka_settings, topic, {0: 4})
        healed = True
        await until_committed(kafka_settings, topic, {0: 6})
    assert [record.value for record in await read(kafka_settings, Topics.dead_letter(topic), 4)] == [
        b"0",
        b"1",
        b"2",
        b"3",
    ]


async def test_an_outage_keeps_a_batch_together(kafka_settings: KafkaSettings, topic: str) -> None:
    await publish(kafka_settings, topic, [b"0", b"1", b"2"])
    sizes: list[int] = []

    async def handle(messages: Sequence[Message]) -> None:
        sizes.append(len(messages))
        if len(sizes) < 6:
            raise Unavailable("down")

    async with batched(kafka_settings, topic, handle, size=3, linger_s=5):
        await until_committed(kafka_settings, topic, {0: 3})
    assert sizes == [3] * 6


async def test_when_everything_fails_the_topic_is_not_drained_into_the_dead_letters(
    kafka_settings: KafkaSettings, topic: str
) -> None:
    await publish(kafka_settings, topic, [str(n).encode() for n in range(20)])
    healed = False
    handler = Seen()
    tries = 0

    async def handle(message: Message) -> None:
        nonlocal tries
        tries += 1
        if not healed:
            raise RuntimeError
        await handler.handle(message)

    retry = FAST.model_copy(update={"dead_letters_in_a_row": 4, "attempts": 1})
    async with serial(kafka_settings, topic, handle, retry=retry):
        await eventually(lambda: tries >= 4 + 10)
        await until_committed(kafka_settings, topic, {0: 4})
        healed = True
        await eventually(lambda: len(handler.messages) == 16)
        # Closed again: a bad message among good ones is put aside as before.
        healed = False
        await publish(kafka_settings, topic, [b"bad"])
        await until_committed(kafka_settings, topic, {0: 21})
    dead = await read(kafka_settings, Topics.dead_letter(topic), 5)
    assert [record.value for record in dead] == [b"0", b"1", b"2", b"3", b"bad"]


async def test_a_failure_to_tell_of_the_dead_message_does_not_keep_it_alive(
    kafka_settings: KafkaSettings, topic: str
) -> None:
    await publish(kafka_settings, topic, [b"bad", b"good"])
    handler = Failing({b"bad": Poison("no")})

    async def on_dead(message: Message, error: Exception) -> None:
        raise Poison("cannot be read here either")

    async with serial(kafka_settings, topic, handler.handle, on_dead=on_dead):
        await eventually(lambda: handler.values() == [b"good"])
    [record] = await read(kafka_settings, Topics.dead_letter(topic), 1)
    assert record.value == b"bad"


async def test_an_outage_while_telling_of_the_dead_message_is_waited_for(
    kafka_settings: KafkaSettings, topic: str
) -> None:
    await publish(kafka_settings, topic, [b"bad"])
    told: list[bytes | None] = []

    async def on_dead(message: Message, error: Exception) -> None:
        told.append(message.value)
        if len(told) < 5:
            raise Unavailable("down")

    async with serial(kafka_settings, topic, Failing({b"bad": Poison("no")}).handle, on_dead=on_dead):
        await until_committed(kafka_settings, topic, {0: 1})
    assert told == [b"bad"] * 5


async def test_a_stop_does_not_wait_for_an_outage_to_end(kafka_settings: KafkaSettings, topic: str) -> None:
    await publish(kafka_settings, topic, [b"a", b"b"])
    handler = Failing({b"a": Unavailable("down")})
    patient = FAST.model_copy(update={"backoff_min_s": 60, "backoff_max_s": 60, "stop_timeout_s": 60})
    async with asyncio.timeout(15):
        async with serial(kafka_settings, topic, handler.handle, retry=patient):
            await eventually(lambda: handler.tries == [b"a"])
    assert handler.tries == [b"a"]
    assert await committed(kafka_settings, topic) == {}


async def test_a_stop_cuts_short_what_takes_too_long_and_leaves_it_for_the_next(
    kafka_settings: KafkaSettings, topic: str
) -> None:
    await publish(kafka_settings, topic, [b"a"])
    began, never, cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handle(message: Message) -> None:
        began.set()
        try:
            await never.wait()
        finally:
            cancelled.set()

    async with asyncio.timeout(15):
        async with serial(kafka_settings, topic, handle, retry=FAST.model_copy(update={"stop_timeout_s": 0.2})):
            await began.wait()
    assert cancelled.is_set()
    assert await committed(kafka_settings, topic) == {}


async def test_the_trace_of_a_message_is_current_while_it_is_handled(
    kafka_settings: KafkaSettings, topic: str
) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    header = ("traceparent", f"00-{trace_id}-b7ad6b7169203331-01".encode())
    await publish(kafka_settings, topic, [b"a"], headers=[header])
    traces: list[str | None] = []

    async def handle(message: Message) -> None:
        traces.append(tracing.current_trace_id())

    async with serial(kafka_settings, topic, handle):
        await eventually(lambda: bool(traces))
    assert traces == [trace_id]
