"""A broker that goes away and comes back. Always the embedded one, as it has to be killed."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.embedded.broker import NAME, EmbeddedBroker
from deploy.embedded.ports import free_ports
from deploy.kafka.topics import ensure_topics
from kbmesh.errors import Unavailable
from kbmesh.messaging import Consumer, KafkaSettings, Message, Outgoing, Producer, run_serial
from tests.support.consuming import FAST, GROUP, Seen, eventually, publish, running, serial, until_committed

pytestmark = pytest.mark.broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    [port] = free_ports(1)
    broker = EmbeddedBroker(tmp_path / "data", port=port, run_dir=tmp_path, log_file=tmp_path / "broker.log")
    yield broker
    broker.stop()


@pytest.fixture
def settings(broker: EmbeddedBroker) -> KafkaSettings:
    """An outage is noticed within a second or two."""
    return KafkaSettings(
        bootstrap_servers=broker.bootstrap_servers, request_timeout_s=2, session_timeout_s=6, probe_interval_s=0.5
    )


async def start(broker: EmbeddedBroker, settings: KafkaSettings) -> None:
    await asyncio.to_thread(broker.start)
    await ensure_topics(settings, partitions=2)


async def kill(broker: EmbeddedBroker) -> None:
    """Without letting it save what it has."""
    os.kill(json.loads((broker.run_dir / f"{NAME}.pid").read_text())["pid"], signal.SIGKILL)
    await asyncio.to_thread(broker.stop)


def outgoing(settings: KafkaSettings, value: bytes) -> Outgoing:
    return Outgoing(settings.topics.documents, b"k", value, {})


async def test_a_consumer_that_is_there_before_the_broker_joins_once_it_comes(
    broker: EmbeddedBroker, settings: KafkaSettings
) -> None:
    seen = Seen()
    async with serial(settings, settings.topics.documents, seen.handle) as consumer:
        await asyncio.sleep(0.2)
        assert not consumer.connected
        await start(broker, settings)
        await publish(settings, settings.topics.documents, [b"a"])
        await eventually(lambda: seen.values() == [b"a"])
        assert consumer.connected


async def test_a_consumer_notices_an_outage_and_goes_on_after_it(
    broker: EmbeddedBroker, settings: KafkaSettings
) -> None:
    topic = settings.topics.documents
    await start(broker, settings)
    seen = Seen()
    async with serial(settings, topic, seen.handle) as consumer:
        await publish(settings, topic, [b"before"])
        await until_committed(settings, topic, {0: 1})
        await asyncio.to_thread(broker.stop)
        await eventually(lambda: not consumer.connected)
        await start(broker, settings)
        await publish(settings, topic, [b"after"])
        await eventually(lambda: b"after" in seen.values())
        assert consumer.connected
        await until_committed(settings, topic, {0: 2})
    assert seen.values() == [b"before", b"after"]


async def test_work_in_hand_when_the_broker_goes_is_finished_or_done_again(
    broker: EmbeddedBroker, settings: KafkaSettings
) -> None:
    topic = settings.topics.documents
    await start(broker, settings)
    await publish(settings, topic, [str(n).encode() for n in range(10)])
    seen = Seen()
    began, release = asyncio.Event(), asyncio.Event()

    async def handle(message: Message) -> None:
        began.set()
        await release.wait()
        await seen.handle(message)

    async with serial(settings, topic, handle) as consumer:
        await asyncio.wait_for(began.wait(), 10)
        await asyncio.to_thread(broker.stop)
        await eventually(lambda: not consumer.connected)
        release.set()
        await start(broker, settings)
        await eventually(lambda: len(set(seen.values())) == 10)
        await until_committed(settings, topic, {0: 10})


async def test_a_consumer_stops_soon_when_the_broker_is_gone(
    broker: EmbeddedBroker, settings: KafkaSettings
) -> None:
    await start(broker, settings)
    seen = Seen()
    consumer = Consumer(settings, [settings.topics.documents], settings.group(GROUP), window=10)
    dead_letters = Producer(settings)
    async with running(
        lambda stop: run_serial(consumer, seen.handle, dead_letters, concurrency=1, retry=FAST, stop=stop)
    ):
        await publish(settings, settings.topics.documents, [b"a"])
        await eventually(lambda: len(seen.messages) == 1)
        await kill(broker)
    assert not consumer.connected


async def test_a_consumer_stops_soon_when_the_broker_was_never_there(settings: KafkaSettings) -> None:
    async with serial(settings, settings.topics.documents, Seen().handle):
        await asyncio.sleep(0.1)


async def test_a_dead_letter_waits_for_the_broker_and_is_not_lost(
    broker: EmbeddedBroker, settings: KafkaSettings
) -> None:
    topic = settings.topics.documents
    await start(broker, settings)
    await publish(settings, topic, [b"bad"])
    began, release = asyncio.Event(), asyncio.Event()

    async def handle(message: Message) -> None:
        began.set()
        await release.wait()
        raise ZeroDivisionError

    async with serial(settings, topic, handle):
        await asyncio.wait_for(began.wait(), 10)
        await asyncio.to_thread(broker.stop)
        release.set()
        await asyncio.sleep(1)
        await start(broker, settings)
        await until_committed(settings, topic, {0: 1})


async def test_a_producer_tells_of_the_outage_in_time_and_recovers(
    broker: EmbeddedBroker, settings: KafkaSettings
) -> None:
    await start(broker, settings)
    producer = Producer(settings)
    try:
        assert await producer.send([outgoing(settings, b"before")]) == [True]
        await kill(broker)
        for _ in range(2):
            with suppress(Unavailable):
                assert await producer.send([outgoing(settings, b"during")]) == [False]
        await start(broker, settings)
        assert await producer.send([outgoing(settings, b"after")]) == [True]
    finally:
        await producer.close()


async def test_a_producer_recovers_when_the_broker_forgot_it(
    broker: EmbeddedBroker, settings: KafkaSettings
) -> None:
    await start(broker, settings)
    producer = Producer(settings)
    try:
        for n in range(5):
            assert await producer.send([outgoing(settings, str(n).encode())]) == [True]
        await kill(broker)  # before it has saved anything
        await start(broker, settings)
        async with asyncio.timeout(30):
            while await producer.send([outgoing(settings, b"again")]) != [True]:
                pass
        assert await producer.send([outgoing(settings, b"and again")]) == [True]
    finally:
        await producer.close()
