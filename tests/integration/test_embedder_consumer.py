import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import grpc
import numpy as np
import pytest
from aiokafka import AIOKafkaConsumer
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import HttpUrl
from structlog.testing import capture_logs

from deploy.embedded.ports import free_ports
from deploy.embedded.postgres import query
from kbmesh.auth import AuthMode, AuthSettings
from kbmesh.embedding.v1 import embedding_pb2, embedding_pb2_grpc
from kbmesh.events.v1.chunks_pb2 import ChunksReady
from kbmesh.messaging import KafkaSettings, Outgoing, Producer, RetrySettings, Topics, headers_for
from kbmesh.postgres import Pool, PostgresSettings
from kbmesh.rpc import GrpcSettings
from kbmesh.rpc.status import reason
from services.embedder.adapters.postgres import PostgresVectorStore
from services.embedder.bootstrap import bootstrap
from services.embedder.domain.encoding import Encoded, InputType, Lane
from services.embedder.domain.spaces import Space
from services.embedder.entrypoints.kafka import consume_chunks
from services.embedder.settings import EmbedderSettings, ModelSettings
from tests.support.databases import DatabaseServer
from tests.support.endpoint import Answer, answering, vectors
from tests.support.sources import Prepared, add_document
from tests.support.vectors import OneSpace, open_space

pytestmark = pytest.mark.broker

SPACE = Space("test-model", 4)


class LetterEncoder:
    """Cheap vectors; fails on a text with "bad" in it, until it is mended."""

    dimensions = SPACE.dimensions

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.mended = False

    async def encode(self, texts: Sequence[str], input_type: InputType, lane: Lane) -> Encoded:
        self.batches.append(len(texts))
        if any("bad" in text for text in texts) and not self.mended:
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


async def dead_letters(kafka: KafkaSettings, count: int) -> list[Outgoing]:
    """As they would be published to be replayed."""
    consumer = AIOKafkaConsumer(
        Topics.dead_letter(kafka.topics.chunks), auto_offset_reset="earliest", **kafka.client_options()
    )
    await consumer.start()
    try:
        async with asyncio.timeout(15):
            records = [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()
    return [Outgoing(kafka.topics.chunks, r.key, r.value, dict(r.headers)) for r in records]


async def test_a_bad_text_fails_its_document_and_alone_goes_to_the_dead_letters(
    pool: Pool, kafka_settings: KafkaSettings
) -> None:
    bad = await add_document(pool, "good", "bad", "fine", "bad too")
    alone = await add_document(pool, "bad alone")
    good = [await add_document(pool, f"text {n}") for n in range(20)]
    encoder = LetterEncoder()
    async with members(pool, kafka_settings, encoder):
        await publish(kafka_settings, [*good[:10], bad, alone, *good[10:]])
        await until(lambda: _equal(statuses(pool), {"ready": 20, "failed": 2}))
        rows = await pool.fetch("SELECT id, error_code, embedded_count FROM documents WHERE status = 'failed'")
        assert {tuple(row) for row in rows} == {
            (bad.document_id, "embedding_failed", 2),
            (alone.document_id, "embedding_failed", 0),
        }
        letters = await dead_letters(kafka_settings, 2)
        events = [ChunksReady.FromString(letter.value or b"") for letter in letters]
        assert {(event.source_id, tuple(map(UUID, event.chunk_ids))) for event in events} == {
            (bad.source.source_id, bad.chunk_ids[1::2]),
            (alone.source.source_id, alone.chunk_ids),
        }
        for letter, event in zip(letters, events, strict=True):
            assert (letter.key, event.revision) == (event.source_id.encode(), 1)
            assert letter.headers["kbmesh-dlq-error"] == b"RuntimeError"
            assert letter.headers["kbmesh-dlq-topic"] == kafka_settings.topics.chunks.encode()
        encoder.mended = True
        await send(kafka_settings, *letters)
        await until(lambda: _equal(statuses(pool), {"ready": 22}))


async def test_a_message_that_is_no_event_is_put_aside(pool: Pool, kafka_settings: KafkaSettings) -> None:
    document = await add_document(pool, "text")
    async with members(pool, kafka_settings, LetterEncoder()):
        await send(kafka_settings, Outgoing(kafka_settings.topics.chunks, b"k", b"\xff\xff", {}))
        await publish(kafka_settings, [document])
        await until(lambda: _equal(statuses(pool), {"ready": 1}))
        [letter] = await dead_letters(kafka_settings, 1)
        assert letter.value == b"\xff\xff"


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


class HeldEncoder(LetterEncoder):
    """Waits in each batch until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

    async def encode(self, texts: Sequence[str], input_type: InputType, lane: Lane) -> Encoded:
        self.began.set()
        await self.go_on.wait()
        return await super().encode(texts, input_type, lane)


async def test_a_stop_in_a_batch_finishes_it_and_the_next_member_goes_on_from_there(
    pool: Pool, kafka_settings: KafkaSettings
) -> None:
    first, second = await add_document(pool, "a"), await add_document(pool, "b")
    held = HeldEncoder()
    async with members(pool, kafka_settings, held):
        await publish(kafka_settings, [first])
        await held.began.wait()
        asyncio.get_running_loop().call_soon(held.go_on.set)  # no sooner than the stop, which is next
    assert await statuses(pool) == {"ready": 1, "embedding": 1}
    await publish(kafka_settings, [second])
    encoder = LetterEncoder()
    async with members(pool, kafka_settings, encoder):
        await until(lambda: _equal(statuses(pool), {"ready": 2}))
    assert encoder.batches == [1]


async def test_a_batch_waits_for_a_database_that_goes_away_while_it_is_encoded(
    pool: Pool, kafka_settings: KafkaSettings, database_server: DatabaseServer, database_dsn: str
) -> None:
    document = await add_document(pool, "a", "b")
    name = database_server.name_of(database_dsn)
    held = HeldEncoder()
    async with members(pool, kafka_settings, held):
        await publish(kafka_settings, [document])
        await held.began.wait()
        with capture_logs() as lines:
            await _change(database_server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            await _change(
                database_server,
                f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'",  # noqa: S608
            )
            held.go_on.set()
            async with asyncio.timeout(30):
                while sum(line["event"] == "dependency_unavailable" for line in lines) < 3:
                    await asyncio.sleep(0.02)
            await _change(database_server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            await until(lambda: _equal(statuses(pool), {"ready": 1}))
    assert held.batches == [2, 2]
    assert {line["event"] for line in lines} == {"dependency_unavailable", "chunks_embedded"}


async def _change(server: DatabaseServer, statement: str) -> None:
    await asyncio.to_thread(query, server.dsn, statement)


async def test_the_whole_service_embeds_a_hundred_documents_and_answers_queries(
    pool: Pool, postgres_settings: PostgresSettings, kafka_settings: KafkaSettings
) -> None:
    documents = [await add_document(pool, f"Table number {n} holds orders.") for n in range(100)]
    [port] = free_ports(1)
    settings = EmbedderSettings(
        postgres=postgres_settings,
        kafka=kafka_settings,
        auth=AuthSettings(mode=AuthMode.OFF),
        grpc=GrpcSettings(port=port),
        device="cpu",
        precision="fp32",
        threads=1,
    )
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        states = asyncio.create_task(_states_until_serving(channel))
        async with bootstrap(settings):
            await publish(kafka_settings, documents)
            await until(lambda: _equal(statuses(pool), {"ready": 100}))
            embed = embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed
            answer = await embed(embedding_pb2.EmbedRequest(texts=["Table number 7 holds orders."]), timeout=10)
    assert set((await states)[:-1]) == {"NOT_SERVING"}
    assert (answer.space_id, answer.dimensions) == ("all_minilm_l6_v2_384", 384)
    nearest = await pool.fetchrow(
        "SELECT c.content, 1 - (v.embedding <=> $1) AS cosine FROM vectors_all_minilm_l6_v2_384 v"
        " JOIN chunks c ON c.id = v.chunk_id ORDER BY v.embedding <=> $1 LIMIT 1",
        list(answer.embeddings[0].values),
    )
    assert nearest is not None
    assert nearest["content"] == "Table number 7 holds orders."
    assert nearest["cosine"] > 0.9999


async def test_the_whole_service_embeds_with_a_model_behind_an_endpoint(
    pool: Pool, postgres_settings: PostgresSettings, kafka_settings: KafkaSettings
) -> None:
    documents = [await add_document(pool, "a", "bb"), await add_document(pool, "bad", "good")]
    [port] = free_ports(1)
    async with answering() as endpoint, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        endpoint.then = lambda texts: Answer(400) if "bad" in str(texts) else vectors(texts)
        settings = EmbedderSettings(
            postgres=postgres_settings,
            kafka=kafka_settings,
            auth=AuthSettings(mode=AuthMode.OFF),
            grpc=GrpcSettings(port=port),
            model=ModelSettings(provider="openai", name="far", url=HttpUrl(endpoint.url), query_prompt="search: "),
        )
        async with bootstrap(settings):
            await publish(kafka_settings, documents)
            await until(lambda: _equal(statuses(pool), {"ready": 1, "failed": 1}))
            embed = embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed
            answer = await embed(embedding_pb2.EmbedRequest(texts=["where?"]), timeout=10)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await embed(embedding_pb2.EmbedRequest(texts=["bad"]), timeout=10)
    assert (answer.space_id, answer.dimensions) == ("far_4", 4)
    assert answer.embeddings[0].values == pytest.approx([14 / 197**0.5, 1 / 197**0.5, 0, 0])
    assert (refused.value.code(), reason(refused.value)) == (grpc.StatusCode.INVALID_ARGUMENT, "TEXT_REFUSED")
    assert await pool.fetchval("SELECT count(*) FROM vectors_far_4") == 3


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
