import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from aiokafka import AIOKafkaConsumer
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.embedded.ports import free_ports
from kbmesh.auth import AuthMode, AuthSettings
from kbmesh.embedding.v1 import embedding_pb2, embedding_pb2_grpc
from kbmesh.events.v1.chunks_pb2 import ChunksReady
from kbmesh.http import HttpSettings
from kbmesh.messaging import KafkaSettings, Outgoing, Producer, RetrySettings, Topics, headers_for
from kbmesh.postgres import Pool, PostgresSettings
from kbmesh.rpc import GrpcSettings
from services.embedder.adapters.postgres import PostgresVectorStore
from services.embedder.bootstrap import bootstrap
from services.embedder.domain.encoding import Encoded, InputType, Lane
from services.embedder.domain.spaces import Space
from services.embedder.entrypoints.kafka import consume_chunks
from services.embedder.settings import EmbedderSettings
from tests.support.sources import Prepared, add_document
from tests.support.vectors import OneSpace, open_space

pytestmark = pytest.mark.broker

SPACE = Space("test-model", 4)


class LetterEncoder:
    """Cheap vectors; fails on a text with "bad" in it."""

    dimensions = SPACE.dimensions

    def __init__(self) -> None:
        self.batches: list[int] = []

    async def encode(self, texts: Sequence[str], input_type: InputType, lane: Lane) -> Encoded:
        self.batches.append(len(texts))
        if any("bad" in text for text in texts):
            raise RuntimeError("cannot encode this")
        vectors = np.array([[len(text), 1, 0, 0] for text in texts], np.float32)
        return Encoded(vectors, (1,) * len(texts), (False,) * len(texts))


async def publish(kafka: KafkaSettings, sources: Sequence[Prepared]) -> None:
    outgoing = []
    for prepared in sources:
        event = ChunksReady(
            chunk_ids=map(str, prepared.chunk_ids),
            kind=prepared.source.kind,
            source_id=prepared.source.source_id,
            revision=prepared.source.revision,
        )
        headers = headers_for(event, source="/test", subject=event.source_id)
        outgoing.append(
            Outgoing(
                kafka.topics.chunks,
                event.source_id.encode(),
                event.SerializeToString(),
                {name: value.encode() for name, value in headers.items()},
            )
        )
    await send(kafka, *outgoing)


async def send(kafka: KafkaSettings, *outgoing: Outgoing) -> None:
    producer = Producer(kafka)
    try:
        assert all(await producer.send(outgoing))
    finally:
        await producer.close()


@asynccontextmanager
async def members(pool: Pool, kafka: KafkaSettings, *encoders: LetterEncoder) -> AsyncIterator[None]:
    """Consumers of one group, one for each encoder, stopped at the end as a signal would."""
    await open_space(pool, SPACE)
    store = PostgresVectorStore(pool, status_topic=kafka.topics.status)
    stop = asyncio.Event()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for encoder in encoders:
            tasks.create_task(
                consume_chunks(
                    kafka,
                    spaces=OneSpace(SPACE),
                    models={SPACE.model: encoder},
                    store=store,
                    batch_chunks=32,
                    linger_s=0.05,
                    in_flight=2,
                    retry=RetrySettings(backoff_min_s=0.01),
                    stop=stop,
                )
            )
        try:
            yield
        finally:
            stop.set()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(45):
        while not await condition():
            await asyncio.sleep(0.1)


async def statuses(pool: Pool) -> dict[str, int]:
    rows = await pool.fetch("SELECT status, count(*) FROM documents GROUP BY status")
    return {row["status"]: row["count"] for row in rows}


async def dead_letters(kafka: KafkaSettings, count: int) -> list[bytes | None]:
    consumer = AIOKafkaConsumer(
        Topics.dead_letter(kafka.topics.chunks), auto_offset_reset="earliest", **kafka.client_options()
    )
    await consumer.start()
    try:
        async with asyncio.timeout(15):
            return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


async def test_one_bad_text_fails_its_document_and_no_other(pool: Pool, kafka_settings: KafkaSettings) -> None:
    bad = await add_document(pool, "good", "bad")
    good = [await add_document(pool, f"text {n}") for n in range(20)]
    async with members(pool, kafka_settings, LetterEncoder()):
        await publish(kafka_settings, [*good[:10], bad, *good[10:]])
        await until(lambda: _equal(statuses(pool), {"ready": 20, "failed": 1}))
    row = await pool.fetchrow("SELECT id, error_code FROM documents WHERE status = 'failed'")
    assert row is not None
    assert (row["id"], row["error_code"]) == (bad.document_id, "embedding_failed")
    [value] = await dead_letters(kafka_settings, 1)
    assert ChunksReady.FromString(value or b"").source_id == bad.source.source_id


async def test_a_message_that_is_no_event_is_put_aside(pool: Pool, kafka_settings: KafkaSettings) -> None:
    document = await add_document(pool, "text")
    async with members(pool, kafka_settings, LetterEncoder()):
        await send(kafka_settings, Outgoing(kafka_settings.topics.chunks, b"k", b"\xff\xff", {}))
        await publish(kafka_settings, [document])
        await until(lambda: _equal(statuses(pool), {"ready": 1}))
        assert await dead_letters(kafka_settings, 1) == [b"\xff\xff"]


async def test_chunks_of_many_messages_are_encoded_together(pool: Pool, kafka_settings: KafkaSettings) -> None:
    documents = [await add_document(pool, f"text {n}") for n in range(128)]
    encoder = LetterEncoder()
    await publish(kafka_settings, documents)
    async with members(pool, kafka_settings, encoder):
        await until(lambda: _equal(statuses(pool), {"ready": 128}))
    assert max(encoder.batches) == 32
    assert len(encoder.batches) <= 16


async def test_two_members_share_the_work_and_repeat_none_of_it(pool: Pool, kafka_settings: KafkaSettings) -> None:
    documents = [await add_document(pool, *(f"text {n}" for n in range(8))) for _ in range(40)]
    async with members(pool, kafka_settings, LetterEncoder(), LetterEncoder()):
        for start in range(0, 40, 10):
            await publish(kafka_settings, documents[start : start + 10] * 2)
        await until(lambda: _equal(statuses(pool), {"ready": 40}))
    assert await pool.fetchval(f"SELECT count(*) FROM {SPACE.table}") == 320  # noqa: S608
    assert await pool.fetchval("SELECT count(*) FROM outbox") == 40


async def test_a_restarted_member_goes_on_where_the_last_one_stopped(
    pool: Pool, kafka_settings: KafkaSettings
) -> None:
    first, second = await add_document(pool, "a"), await add_document(pool, "b")
    async with members(pool, kafka_settings, LetterEncoder()):
        await publish(kafka_settings, [first])
        await until(lambda: _equal(statuses(pool), {"ready": 1, "embedding": 1}))
    await publish(kafka_settings, [second])
    encoder = LetterEncoder()
    async with members(pool, kafka_settings, encoder):
        await until(lambda: _equal(statuses(pool), {"ready": 2}))
    assert encoder.batches == [1]


async def test_the_whole_service_embeds_a_hundred_documents_and_answers_queries(
    pool: Pool, postgres_settings: PostgresSettings, kafka_settings: KafkaSettings
) -> None:
    documents = [await add_document(pool, f"Table number {n} holds orders.") for n in range(100)]
    port, http_port = free_ports(2)
    settings = EmbedderSettings(
        postgres=postgres_settings,
        kafka=kafka_settings,
        auth=AuthSettings(mode=AuthMode.OFF),
        grpc=GrpcSettings(port=port),
        http=HttpSettings(port=http_port),
        device="cpu",
        precision="fp32",
        threads=1,
    )
    async with (
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{http_port}", timeout=10) as http,
    ):
        states = asyncio.create_task(_states_until_serving(channel))
        async with bootstrap(settings):
            await publish(kafka_settings, documents)
            await until(lambda: _equal(statuses(pool), {"ready": 100}))
            embed = embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed
            answer = await embed(embedding_pb2.EmbedRequest(texts=["Table number 7 holds orders."]), timeout=10)
            ready = await http.get("/health/ready")
            models = (await http.get("/v1/models")).json()["data"]
            over_http = await http.post(
                "/v1/embeddings",
                json={"model": "all-MiniLM-L6-v2", "input": "Table number 7 holds orders.", "dimensions": 256},
            )
    assert set((await states)[:-1]) == {"NOT_SERVING"}
    assert (answer.space_id, answer.dimensions) == ("all_minilm_l6_v2_384", 384)
    nearest = await pool.fetchrow(
        "SELECT c.content, 1 - (v.embedding <=> $1) AS cosine FROM vectors_all_minilm_l6_v2_384 v"
        " JOIN chunks c ON c.id = v.chunk_id ORDER BY v.embedding <=> $1 LIMIT 1",
        list(answer.embeddings[0].values),
    )
    assert ready.status_code == 200
    assert {model["id"] for model in models} == {"all-MiniLM-L6-v2", "all_minilm_l6_v2_384"}
    cut = np.array(answer.embeddings[0].values[:256])
    assert over_http.json()["data"][0]["embedding"] == pytest.approx(cut / np.linalg.norm(cut), abs=1e-5)
    assert nearest is not None
    assert nearest["content"] == "Table number 7 holds orders."
    assert nearest["cosine"] > 0.9999


async def _states_until_serving(channel: grpc.aio.Channel) -> list[str]:
    """What health checks see while the service starts."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    seen: list[str] = []
    while "SERVING" not in seen:
        response = await stub.Check(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=60)
        seen.append(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))
        await asyncio.sleep(0.05)
    return seen


async def _equal(actual: Awaitable[dict[str, int]], expected: dict[str, int]) -> bool:
    return await actual == expected


class SlowEncoder(LetterEncoder):
    """One batch at a time, each as slow as its texts are many."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = asyncio.Lock()

    async def encode(self, texts: Sequence[str], input_type: InputType, lane: Lane) -> Encoded:
        async with self._turn:
            await asyncio.sleep(len(texts) * 0.004)
            return await super().encode(texts, input_type, lane)


async def test_small_documents_do_not_wait_for_large_ones_that_came_before(
    pool: Pool, kafka_settings: KafkaSettings
) -> None:
    large = [await add_document(pool, *(f"text {n}" for n in range(32 * 12))) for _ in range(2)]
    parts = [
        replace(document, chunk_ids=document.chunk_ids[start : start + 32])
        for document in large
        for start in range(0, 32 * 12, 32)
    ]
    small = [await add_document(pool, "text") for _ in range(8)]
    await publish(kafka_settings, parts)
    async with members(pool, kafka_settings, SlowEncoder()):
        await until(lambda: _at_least(pool, embedded=64))
        await publish(kafka_settings, small)
        await until(lambda: _equal(statuses(pool), {"ready": 8, "embedding": 2}))


async def _at_least(pool: Pool, *, embedded: int) -> bool:
    return bool(await pool.fetchval("SELECT sum(embedded_count) >= $1 FROM documents", embedded))
