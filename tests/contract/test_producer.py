"""Publishing: in order, acknowledged by all replicas, and never waiting without end."""

import asyncio

import pytest

from deploy.embedded.ports import LOOPBACK, free_ports
from kbmesh.errors import Unavailable
from kbmesh.messaging import KafkaSettings, Outgoing, Producer
from tests.support.records import read

pytestmark = pytest.mark.broker


def outgoing(topic: str, value: bytes, key: bytes = b"k") -> Outgoing:
    return Outgoing(topic, key, value, {"ce_id": b"1"})


async def test_what_is_acknowledged_is_in_the_topic_in_order(kafka_settings: KafkaSettings) -> None:
    topic = kafka_settings.topics.documents
    values = [str(n).encode() for n in range(500)]
    producer = Producer(kafka_settings)
    try:
        assert await producer.send([outgoing(topic, value) for value in values]) == [True] * 500
        assert await producer.send([outgoing(topic, b"last")]) == [True]
    finally:
        await producer.close()
    records = await read(kafka_settings, topic, 501)
    assert [record.value for record in records] == [*values, b"last"]
    assert dict(records[0].headers) == {"ce_id": b"1"}


async def test_several_senders_at_once_do_not_mix_up_their_answers(kafka_settings: KafkaSettings) -> None:
    topic = kafka_settings.topics.documents
    producer = Producer(kafka_settings)
    try:
        batches = [[outgoing(topic, f"{n}-{m}".encode(), f"{n}".encode()) for m in range(20)] for n in range(8)]
        answers = await asyncio.gather(*[producer.send(batch) for batch in batches])
    finally:
        await producer.close()
    assert answers == [[True] * 20] * 8
    records = await read(kafka_settings, topic, 160)
    for n in range(8):
        mine = [record.value for record in records if record.key == f"{n}".encode()]
        assert mine == [f"{n}-{m}".encode() for m in range(20)]


async def test_nothing_to_send_is_nothing_to_do(kafka_settings: KafkaSettings) -> None:
    producer = Producer(kafka_settings)
    assert await producer.send([]) == []
    await producer.close()


async def test_a_message_that_cannot_be_sent_is_told_and_does_not_spoil_the_next(
    kafka_settings: KafkaSettings,
) -> None:
    topic = kafka_settings.topics.documents
    producer = Producer(kafka_settings)
    try:
        assert await producer.send([outgoing(topic, b"0" * 4_000_000)]) == [False]
        assert await producer.send([outgoing(topic, b"fits")]) == [True]
    finally:
        await producer.close()
    [record] = await read(kafka_settings, topic, 1)
    assert record.value == b"fits"


async def test_without_a_broker_it_says_so_and_nothing_stays_open() -> None:
    [port] = free_ports(1)
    producer = Producer(KafkaSettings(bootstrap_servers=f"{LOOPBACK}:{port}", request_timeout_s=1))
    with pytest.raises(Unavailable) as caught:
        await producer.send([outgoing("t", b"x")])
    assert caught.value.code == "broker_unavailable"
    await producer.close()


async def test_a_broker_that_accepts_and_says_nothing_is_given_up_after_the_timeout() -> None:
    hung_up = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        hung_up.set()

    async with await asyncio.start_server(silent, LOOPBACK, 0) as server:
        port = server.sockets[0].getsockname()[1]
        producer = Producer(KafkaSettings(bootstrap_servers=f"{LOOPBACK}:{port}", request_timeout_s=1))
        with pytest.raises(Unavailable):
            await producer.send([outgoing("t", b"x")])
        await producer.close()
        await asyncio.wait_for(hung_up.wait(), 5)


async def test_a_sender_that_is_cancelled_while_connecting_leaves_a_producer_that_works(
    kafka_settings: KafkaSettings,
) -> None:
    topic = kafka_settings.topics.documents
    producer = Producer(kafka_settings)
    try:
        sending = asyncio.ensure_future(producer.send([outgoing(topic, b"cancelled")]))
        await asyncio.sleep(0)  # into the start of the client, which needs the network to go on
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert await producer.send([outgoing(topic, b"next")]) == [True]
    finally:
        await producer.close()
