"""At-least-once delivery, on whichever broker this runs."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

import pytest
from aiokafka.consumer.fetcher import Fetcher

from kbmesh.messaging import Consumer, KafkaSettings, Message, Producer, run_serial
from kbmesh.messaging.client import EMPTY_FETCH_S
from tests.support.consuming import (
    FAST,
    GROUP,
    Seen,
    batched,
    committed,
    eventually,
    publish,
    serial,
    until_committed,
)

pytestmark = pytest.mark.broker


@pytest.fixture
def settings(kafka_settings: KafkaSettings) -> KafkaSettings:
    """Heartbeats, by which members learn of one another, as often as Kafka allows."""
    return kafka_settings.model_copy(update={"session_timeout_s": 6})


@pytest.fixture
def topic(settings: KafkaSettings) -> str:
    return settings.topics.chunks


def numbers(count: int, prefix: str = "") -> list[bytes]:
    return [f"{prefix}{n}".encode() for n in range(count)]


async def test_every_message_is_handled_and_its_offset_committed(settings: KafkaSettings, topic: str) -> None:
    for partition in range(4):
        await publish(settings, topic, numbers(50, f"{partition}-"), partition=partition)
    seen = Seen()
    async with serial(settings, topic, seen.handle):
        await eventually(lambda: len(seen.messages) >= 200)
    assert Counter(seen.values()) == Counter(value for p in range(4) for value in numbers(50, f"{p}-"))
    assert await committed(settings, topic) == dict.fromkeys(range(4), 50)


async def test_an_idle_consumer_asks_now_and_then_even_a_broker_that_never_keeps_it_waiting(
    settings: KafkaSettings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches = 0
    fetch = Fetcher._proc_fetch_request

    async def counted(*arguments: object) -> object:
        nonlocal fetches
        fetches += 1
        return await fetch(*arguments)

    monkeypatch.setattr(Fetcher, "_proc_fetch_request", counted)
    async with Consumer(settings, [topic], GROUP, window=10).running():
        await eventually(lambda: fetches > 0)
        counted_before, started = fetches, time.monotonic()
        await asyncio.sleep(0.5)
        assert fetches - counted_before <= (time.monotonic() - started) / EMPTY_FETCH_S + 1


async def test_a_message_comes_as_it_was_sent(settings: KafkaSettings, topic: str) -> None:
    await publish(settings, topic, [b"\x00\xff"], partition=2, key=b"\xfe", headers=[("a", b"\xff"), ("b", b"")])
    seen = Seen()
    async with serial(settings, topic, seen.handle):
        await eventually(lambda: len(seen.messages) == 1)
    [message] = seen.messages
    assert (message.topic, message.partition, message.offset) == (topic, 2, 0)
    assert (message.key, message.value, message.headers) == (b"\xfe", b"\x00\xff", {"a": b"\xff", "b": b""})


async def test_what_was_not_finished_comes_again(settings: KafkaSettings, topic: str) -> None:
    await publish(settings, topic, numbers(3))
    never = asyncio.Event()
    first, second = Seen(), Seen()

    async def hang_at_the_second(message: Message) -> None:
        await first.handle(message)
        if message.value == b"1":
            await never.wait()

    impatient = FAST.model_copy(update={"stop_timeout_s": 0.1})
    async with serial(settings, topic, hang_at_the_second, retry=impatient):
        await eventually(lambda: len(first.messages) == 2)
    assert await committed(settings, topic) == {0: 1}
    async with serial(settings, topic, second.handle):
        await eventually(lambda: len(second.messages) == 2)
    assert second.values() == [b"1", b"2"]
    assert await committed(settings, topic) == {0: 3}


async def test_offsets_are_committed_while_it_runs_but_never_past_work_in_hand(
    settings: KafkaSettings, topic: str
) -> None:
    await publish(settings, topic, numbers(10), partition=1)
    reached, release = asyncio.Event(), asyncio.Event()
    seen = Seen()

    async def wait_at_the_sixth(message: Message) -> None:
        if message.value == b"5":
            reached.set()
            await release.wait()
        await seen.handle(message)

    async with serial(settings, topic, wait_at_the_sixth):
        await asyncio.wait_for(reached.wait(), 10)
        await until_committed(settings, topic, {1: 5})
        release.set()
        await eventually(lambda: len(seen.messages) == 10)
    assert await committed(settings, topic) == {1: 10}


async def test_a_batch_finished_out_of_order_does_not_commit_past_the_slow_one(
    settings: KafkaSettings, topic: str
) -> None:
    await publish(settings, topic, numbers(20))
    release = asyncio.Event()
    seen = Seen()

    async def first_batch_is_slow(messages: Sequence[Message]) -> None:
        if any(message.offset == 0 for message in messages):
            await release.wait()
        await seen.handle_batch(messages)

    impatient = FAST.model_copy(update={"stop_timeout_s": 0.1})
    async with batched(settings, topic, first_batch_is_slow, size=5, in_flight=2, retry=impatient):
        await eventually(lambda: len(seen.messages) == 15)
    assert await committed(settings, topic) == {}
    release.set()
    async with batched(settings, topic, first_batch_is_slow):
        await eventually(lambda: len(seen.messages) >= 15 + 20)
    assert await committed(settings, topic) == {0: 20}


async def test_one_partition_is_handled_in_order_and_several_at_once(settings: KafkaSettings, topic: str) -> None:
    for partition in range(4):
        await publish(settings, topic, numbers(10), partition=partition)
    seen = Seen()
    busy: Counter[int] = Counter()
    most_at_once = 0
    all_begun = asyncio.Event()

    async def handle(message: Message) -> None:
        nonlocal most_at_once
        busy[message.partition] += 1
        assert busy[message.partition] == 1
        most_at_once = max(most_at_once, busy.total())
        if most_at_once == 3:
            all_begun.set()
        await asyncio.wait_for(all_begun.wait(), 10)
        await asyncio.sleep(0)
        await seen.handle(message)
        busy[message.partition] -= 1

    async with serial(settings, topic, handle, concurrency=3):
        await eventually(lambda: len(seen.messages) == 40)
    assert most_at_once == 3
    for partition in range(4):
        assert seen.values(partition) == numbers(10)


async def test_no_more_than_the_window_is_held_in_memory(settings: KafkaSettings, topic: str) -> None:
    await publish(settings, topic, numbers(500))
    release = asyncio.Event()
    seen = Seen()

    async def handle(message: Message) -> None:
        await release.wait()
        await seen.handle(message)

    async with serial(settings, topic, handle, window=10) as consumer:
        await eventually(lambda: held(consumer) >= 10)
        most = 0
        for _ in range(100):  # several polls
            await asyncio.sleep(0.01)
            most = max(most, held(consumer))
        assert 10 <= most <= 20
        release.set()
        await eventually(lambda: len(seen.messages) >= 500)
    assert seen.values() == numbers(500)


def held(consumer: Consumer) -> int:
    return sum(partition.offsets.in_flight for partition in consumer._partitions.values())


async def test_batches_are_gathered_across_partitions_up_to_their_weight(
    settings: KafkaSettings, topic: str
) -> None:
    for partition in range(4):
        await publish(settings, topic, numbers(4), partition=partition)
    batches: list[Sequence[Message]] = []

    async def handle(messages: Sequence[Message]) -> None:
        batches.append(messages)

    async with batched(settings, topic, handle, size=16, linger_s=5, weigh=lambda message: 2, in_flight=1):
        await eventually(lambda: sum(map(len, batches)) == 16)
    assert [len(batch) for batch in batches] == [8, 8]
    assert any(len({message.partition for message in batch}) > 1 for batch in batches)


async def test_a_batch_that_does_not_fill_waits_no_longer_than_its_linger(
    settings: KafkaSettings, topic: str
) -> None:
    await publish(settings, topic, numbers(3))
    batches: list[Sequence[Message]] = []

    async def handle(messages: Sequence[Message]) -> None:
        batches.append(messages)

    async with batched(settings, topic, handle, size=1_000, linger_s=0.3):
        await eventually(lambda: bool(batches), timeout_s=10)
    assert [len(batch) for batch in batches] == [3]


async def test_a_message_heavier_than_a_batch_is_a_batch_of_its_own(settings: KafkaSettings, topic: str) -> None:
    await publish(settings, topic, numbers(3))
    batches: list[Sequence[Message]] = []

    async def handle(messages: Sequence[Message]) -> None:
        batches.append(messages)

    async with batched(settings, topic, handle, size=4, linger_s=5, weigh=lambda message: 10):
        await eventually(lambda: len(batches) == 3)


async def test_a_second_member_takes_its_share_and_gives_it_back(settings: KafkaSettings, topic: str) -> None:
    first, second = Seen(), Seen()
    later = {value for partition in range(4) for value in numbers(10, f"b{partition}-")}
    async with serial(settings, topic, first.handle) as consumer:
        await eventually(lambda: consumer.connected)
        async with serial(settings, topic, second.handle) as other:
            await eventually(lambda: other.connected)
            for partition in range(4):
                await publish(settings, topic, numbers(10, f"a{partition}-"), partition=partition)
            await eventually(lambda: len(first.messages) + len(second.messages) >= 40)
            assert len({message.partition for message in second.messages}) == 2
            assert len({message.partition for message in first.messages}) == 2
        for partition in range(4):
            await publish(settings, topic, numbers(10, f"b{partition}-"), partition=partition)
        await eventually(lambda: {value for value in first.values() if value and value.startswith(b"b")} == later)
        await until_committed(settings, topic, dict.fromkeys(range(4), 20))


async def test_nothing_is_lost_or_left_uncommitted_while_members_come_and_go(
    settings: KafkaSettings, topic: str
) -> None:
    for partition in range(4):
        await publish(settings, topic, numbers(150, f"{partition}-"), partition=partition)
    seen = Seen()

    async def handle(message: Message) -> None:
        await asyncio.sleep(0.01)
        await seen.handle(message)

    async with serial(settings, topic, handle, concurrency=2):
        await eventually(lambda: len(seen.messages) > 20)
        for _ in range(2):
            async with serial(settings, topic, handle, concurrency=2) as other:
                await eventually(lambda: other.connected)
        await eventually(lambda: len(set(seen.values())) == 600)
        await until_committed(settings, topic, dict.fromkeys(range(4), 150))
    for partition in range(4):
        first_time = list(dict.fromkeys(m.offset for m in seen.messages if m.partition == partition))
        assert first_time == list(range(150))


async def test_work_begun_is_finished_before_its_partition_is_let_go(settings: KafkaSettings, topic: str) -> None:
    for partition in range(4):
        await publish(settings, topic, numbers(2), partition=partition)
    began, release = asyncio.Event(), asyncio.Event()
    first, second = Seen(), Seen()

    async def slow(message: Message) -> None:
        began.set()
        await release.wait()
        await first.handle(message)

    async with serial(settings, topic, slow) as consumer:
        await asyncio.wait_for(began.wait(), 10)
        await eventually(lambda: held(consumer) == 8)
        held_at_first = list(consumer._partitions.values())
        async with serial(settings, topic, second.handle) as other:
            await eventually(lambda: all(partition.revoked for partition in held_at_first))
            assert not other.connected
            assert second.messages == []
            release.set()
            await eventually(lambda: other.connected)
            assert len(first.messages) >= 4
            await eventually(lambda: len({(m.partition, m.offset) for m in first.messages + second.messages}) == 8)
            await until_committed(settings, topic, dict.fromkeys(range(4), 2))


async def test_an_error_that_is_no_outage_ends_the_run_instead_of_stalling_it(
    settings: KafkaSettings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(settings, topic, numbers(1))
    consumer = Consumer(settings, [topic], settings.group(GROUP), window=10)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(consumer, "_deliver", broken)
    seen = Seen()
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.timeout(20):
            await run_serial(
                consumer, seen.handle, Producer(settings), concurrency=1, retry=FAST, stop=asyncio.Event()
            )
    assert caught.group_contains(ZeroDivisionError)
    assert not consumer.connected
