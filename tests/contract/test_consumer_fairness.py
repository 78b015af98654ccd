"""Messages of one key in order, and no key behind the backlog of another."""

import asyncio
from collections.abc import Sequence

import pytest

from kbmesh.messaging import KafkaSettings, Message
from tests.support.consuming import FAST, Seen, batched, committed, eventually, publish, serial

pytestmark = pytest.mark.broker


@pytest.fixture
def topic(kafka_settings: KafkaSettings) -> str:
    return kafka_settings.topics.documents


async def test_a_key_does_not_wait_for_another_of_its_partition_and_keeps_its_own_order(
    kafka_settings: KafkaSettings, topic: str
) -> None:
    await publish(kafka_settings, topic, [b"big 1", b"big 2"], key=b"big")
    await publish(kafka_settings, topic, [b"small 1", b"small 2"], key=b"small")
    release = asyncio.Event()
    began, seen = Seen(), Seen()

    async def handle(message: Message) -> None:
        await began.handle(message)
        if message.value == b"big 1":
            await release.wait()
        await seen.handle(message)

    async with serial(kafka_settings, topic, handle, concurrency=2):
        await eventually(lambda: seen.values() == [b"small 1", b"small 2"])
        assert b"big 2" not in began.values()
        release.set()
        await eventually(lambda: seen.values()[2:] == [b"big 1", b"big 2"])
    assert await committed(kafka_settings, topic) == {0: 4}


async def test_messages_without_a_key_keep_the_order_of_their_partition(
    kafka_settings: KafkaSettings, topic: str
) -> None:
    values = [str(n).encode() for n in range(10)]
    await publish(kafka_settings, topic, values, key=None)
    seen = Seen()

    async def handle(message: Message) -> None:
        await asyncio.sleep(0.001 * (10 - int(message.value or b"0")))
        await seen.handle(message)

    async with serial(kafka_settings, topic, handle, concurrency=8):
        await eventually(lambda: len(seen.messages) == 10)
    assert seen.values() == values


async def test_what_overtook_an_unfinished_message_comes_again_with_it(
    kafka_settings: KafkaSettings, topic: str
) -> None:
    await publish(kafka_settings, topic, [b"big"], key=b"big")
    await publish(kafka_settings, topic, [b"small"], key=b"small")
    first, second = Seen(), Seen()

    async def hang_at_the_big_one(message: Message) -> None:
        if message.value == b"big":
            await asyncio.Event().wait()
        await first.handle(message)

    impatient = FAST.model_copy(update={"stop_timeout_s": 0.1})
    async with serial(kafka_settings, topic, hang_at_the_big_one, retry=impatient):
        await eventually(lambda: first.values() == [b"small"])
    assert await committed(kafka_settings, topic) == {}
    async with serial(kafka_settings, topic, second.handle):
        await eventually(lambda: set(second.values()) == {b"big", b"small"})
    assert await committed(kafka_settings, topic) == {0: 2}


async def test_what_waits_does_not_begin_after_a_stop(kafka_settings: KafkaSettings, topic: str) -> None:
    for key in (b"a", b"b", b"c"):
        await publish(kafka_settings, topic, [key], key=key)
    release = asyncio.Event()
    began = Seen()

    async def handle(message: Message) -> None:
        await began.handle(message)
        await release.wait()

    async with serial(kafka_settings, topic, handle, concurrency=1):
        await eventually(lambda: len(began.messages) == 1)
        asyncio.get_running_loop().call_later(0.2, release.set)
    assert began.values() == [b"a"]


async def test_a_batch_is_chosen_late_and_from_keys_in_turn(kafka_settings: KafkaSettings, topic: str) -> None:
    await publish(kafka_settings, topic, [b"big"] * 40, key=b"big")
    gate = asyncio.Semaphore(0)
    batches: list[list[bytes | None]] = []

    async def handle(messages: Sequence[Message]) -> None:
        batches.append([message.value for message in messages])
        await gate.acquire()

    async with batched(kafka_settings, topic, handle, size=4, in_flight=2) as consumer:
        await eventually(lambda: len(batches) == 2)
        await publish(kafka_settings, topic, [b"small"], key=b"small")
        await eventually(lambda: sum(p.offsets.in_flight for p in consumer._partitions.values()) == 41)
        gate.release()
        await eventually(lambda: len(batches) == 3)
        for _ in range(100):
            gate.release()
        await eventually(lambda: sum(map(len, batches)) == 41)
    assert b"small" in batches[2]


async def test_the_first_message_of_a_key_does_not_wait_for_a_batch_of_another_to_end(
    kafka_settings: KafkaSettings, topic: str
) -> None:
    await publish(kafka_settings, topic, [b"big"] * 40, key=b"big")
    release = asyncio.Event()
    batches: list[list[bytes | None]] = []

    async def handle(messages: Sequence[Message]) -> None:
        batches.append([message.value for message in messages])
        if messages[0].value == b"big" and len(batches) > 1:
            await release.wait()

    async with batched(kafka_settings, topic, handle, size=4, in_flight=2, first_in_flight=1):
        await eventually(lambda: len(batches) >= 3)
        for key in (b"a", b"b"):
            await publish(kafka_settings, topic, [key], key=key)
            await eventually(lambda: batches[-1] == [key])  # noqa: B023 - awaited at once
        release.set()
        await eventually(lambda: sum(map(len, batches)) == 42)
    assert await committed(kafka_settings, topic) == {0: 42}


async def test_a_message_that_would_overfill_a_batch_begins_the_next(
    kafka_settings: KafkaSettings, topic: str
) -> None:
    for number in range(3):
        await publish(kafka_settings, topic, [b"3"], key=str(number).encode())
    batches: list[list[bytes | None]] = []

    async def handle(messages: Sequence[Message]) -> None:
        batches.append([message.value for message in messages])

    async with batched(
        kafka_settings,
        topic,
        handle,
        size=7,
        linger_s=1,
        in_flight=1,
        weigh=lambda message: int(message.value or b""),
    ):
        await eventually(lambda: sum(map(len, batches)) == 3)
    assert batches == [[b"3", b"3"], [b"3"]]
