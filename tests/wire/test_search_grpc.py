"""The search service as its clients see it: real server, real database, an embedding service of the test's own."""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import uuid4

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from pydantic import SecretStr

from deploy.embedded.ports import free_ports
from kbmesh.common.v1 import tier_pb2
from kbmesh.embedding.v1 import embedding_pb2
from kbmesh.postgres import Pool, PostgresSettings
from kbmesh.provenance import Tier
from kbmesh.rpc import GrpcSettings
from kbmesh.search.v1 import search_pb2, search_pb2_grpc
from services.search import bootstrap as search_bootstrap
from tests.support.search import Corpus, Text
from tests.support.search_service import (
    ANN,
    HEALTH,
    SERVICE,
    Client,
    EmbeddingStub,
    health_of,
    reason_of,
    running_search,
    socket_proxy,
)

Search = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
async def corpus(pool: Pool) -> Corpus:
    corpus = Corpus(pool)
    await corpus.create_space()
    return corpus


@pytest.fixture
def embedding() -> EmbeddingStub:
    return EmbeddingStub()


@pytest.fixture
def search(postgres_settings: PostgresSettings, embedding: EmbeddingStub) -> Search:
    """Starts the service; its keywords are those of `running_search`."""

    def start(
        *, postgres: PostgresSettings = postgres_settings, **options: Any
    ) -> AbstractAsyncContextManager[Client]:
        return running_search(postgres, embedding, **options)

    return start


async def test_a_passage_comes_with_its_provenance(
    search: Search, corpus: Corpus, embedding: EmbeddingStub
) -> None:
    kb_id = await corpus.add_base(ANN)
    first, second = await corpus.add_document(
        kb_id,
        Text("Churn is 2 percent.", (1, 0, 0, 0), page=4, headings=["Metrics", "Churn"]),
        Text("Losses of the industry", (0.9, 0.1, 0, 0), Tier.INDUSTRY_BENCHMARK),
        filename="hand[book].pdf",
        category="data_dictionary",
    )

    async with search() as client:
        response = await client.search("what is our churn?", kb_ids=[str(kb_id)], limit=2)

    assert not response.degraded
    assert [passage.chunk_id for passage in response.passages] == [str(first), str(second)]
    passage, other = response.passages
    assert (passage.kb_id, passage.filename, passage.category) == (
        str(kb_id),
        "hand[book].pdf",
        "data_dictionary",
    )
    assert passage.content == "Churn is 2 percent."
    assert passage.label == "[UPLOADED DOCUMENT: hand(book).pdf]"
    assert (passage.tier, other.tier) == (tier_pb2.TIER_CUSTOMER_FACT, tier_pb2.TIER_INDUSTRY_BENCHMARK)
    assert (passage.citation.page, list(passage.citation.headings)) == (4, ["Metrics", "Churn"])
    assert (passage.citation.char_start, passage.citation.char_end) == (0, 19)
    assert len(bytes.fromhex(passage.citation.content_sha256)) == 32
    assert not other.citation.HasField("page")
    assert (passage.score.value, passage.score.relevance, passage.score.freshness) == (1, 1, 1)
    assert (passage.score.vector_rank, passage.score.keyword_rank, other.score.vector_rank) == (1, 1, 2)
    assert other.score.tier_weight == 0.7
    assert "IndustryBenchmark 0.70" in other.score.reason
    assert [request.input_type for request in embedding.requests] == [embedding_pb2.INPUT_TYPE_QUERY]


@pytest.mark.parametrize(("entries", "calls"), [(1_000, 1), (0, 2)])
async def test_a_question_is_encoded_again_only_where_nothing_is_remembered(
    search: Search, corpus: Corpus, embedding: EmbeddingStub, entries: int, calls: int
) -> None:
    async with search(query_cache_entries=entries) as client:
        for _ in range(2):
            assert not (await client.search()).degraded
    assert len(embedding.requests) == calls


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"query": ""}, "EMPTY_QUERY"),
        ({"query": " \x00\x01\n"}, "EMPTY_QUERY"),
        ({"query": "a" * 4_001}, "QUERY_TOO_LONG"),
        ({"limit": 0}, "LIMIT_OUT_OF_RANGE"),
        ({"limit": 51}, "LIMIT_OUT_OF_RANGE"),
        ({"limit": -1}, "LIMIT_OUT_OF_RANGE"),
        ({"kb_ids": ["not-an-id"]}, "INVALID_KB_ID"),
        ({"kb_ids": [""]}, "INVALID_KB_ID"),
        ({"kb_ids": [str(ANN)] * 101}, "TOO_MANY_KB_IDS"),
    ],
)
async def test_bad_input_is_refused_with_a_code(search: Search, fields: dict[str, Any], code: str) -> None:
    async with search() as client:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await client.search(**fields)

        assert failure.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert reason_of(failure) == code
        assert not (await client.search("and it still works")).passages


async def test_a_base_of_somebody_else_answers_exactly_as_a_missing_one(search: Search, corpus: Corpus) -> None:
    theirs = await corpus.add_base(uuid4())
    await corpus.add_document(theirs, Text("churn"))

    async with search() as client:
        guessed = await client.search(kb_ids=[str(theirs)], roles=["admin"])
        missing = await client.search(kb_ids=[str(uuid4())], roles=["admin"])
        everything = await client.search(roles=["admin"])

    assert guessed == missing == everything == search_pb2.KbSearchResponse()


@pytest.mark.parametrize(
    ("metadata", "code"),
    [((), "TOKEN_MISSING"), ((("authorization", "Bearer no.such.token"),), "TOKEN_INVALID")],
)
async def test_without_a_valid_token_nothing_is_answered(
    search: Search, metadata: tuple[tuple[str, str], ...], code: str
) -> None:
    async with search() as client:
        stub = search_pb2_grpc.SearchServiceStub(client.channel)
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await stub.KbSearch(search_pb2.KbSearchRequest(query="churn"), metadata=metadata, timeout=5)

    assert failure.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert reason_of(failure) == code


async def test_health_and_reflection_answer_without_a_token(search: Search) -> None:
    async with search() as client:
        assert await client.health() == HEALTH.SERVING
        assert await client.health("") == HEALTH.SERVING
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(cast(grpc.Channel, client.channel))
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        [answer] = [answer async for answer in stub.ServerReflectionInfo(iter([request]), timeout=5)]
        assert SERVICE in {service.name for service in answer.list_services_response.service}


async def test_without_an_embedder_keywords_answer_at_once_and_say_so(search: Search, corpus: Corpus) -> None:
    [chunk_id] = await corpus.add_document(await corpus.add_base(ANN), Text("churn"))

    async with search(embedding_up=False) as client:
        started = time.monotonic()
        response = await client.search()
        took = time.monotonic() - started

    assert [passage.chunk_id for passage in response.passages] == [str(chunk_id)]
    assert response.degraded
    assert response.degraded_reason.startswith("embedding_unavailable")
    assert took < 4


async def test_a_call_past_its_deadline_ends_and_leaves_no_query_behind(
    search: Search, corpus: Corpus, pool: Pool
) -> None:
    async with search(grpc=GrpcSettings(max_deadline_s=0.5)) as client:
        async with pool.acquire() as conn, conn.transaction():
            await conn.execute("LOCK TABLE chunks IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await client.search()
            active = await conn.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND"
                " datname = current_database() AND application_name = 'kbmesh-search'"
            )

        assert failure.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert reason_of(failure) == "DEADLINE_EXCEEDED"
        assert active == 0
        assert not (await client.search()).degraded


# In this database: others on the same server have waiting locks too.
WAITS_FOR_CHUNKS = """
SELECT EXISTS (SELECT FROM pg_locks
               WHERE NOT granted AND relation = 'chunks'::regclass
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
"""


async def test_calls_in_progress_are_answered_before_the_server_stops(
    search: Search, corpus: Corpus, pool: Pool
) -> None:
    [chunk_id] = await corpus.add_document(await corpus.add_base(ANN), Text("churn"))
    running = search()
    server = (await running.__aenter__()).server
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        async with pool.acquire() as conn, conn.transaction():
            await conn.execute("LOCK TABLE chunks IN ACCESS EXCLUSIVE MODE")
            call = asyncio.create_task(Client(channel, server).search())
            while not await conn.fetchval(WAITS_FOR_CHUNKS):
                await asyncio.sleep(0.01)
            stopping = asyncio.create_task(running.__aexit__(None, None, None))
            # A probe may be told that the server is not serving, or be refused because it has begun to stop.
            with suppress(grpc.aio.AioRpcError):
                while await Client(channel, server).health() == HEALTH.SERVING:
                    await asyncio.sleep(0.01)
            assert not call.done()
        # Only now is the lock released and the call able to go on.
        response = await call
        await stopping

    assert [passage.chunk_id for passage in response.passages] == [str(chunk_id)]


async def test_health_follows_the_database(
    search: Search, corpus: Corpus, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_bootstrap, "HEALTH_EVERY_S", 0.05)
    with tempfile.TemporaryDirectory(prefix="kbmesh-proxy-") as directory:
        dsn = urlunsplit(urlsplit(database_dsn)._replace(query=f"host={quote(directory)}"))
        async with AsyncExitStack() as stack:
            async with socket_proxy(Path(directory), database_dsn):
                settings = PostgresSettings(dsn=SecretStr(dsn), connect_timeout_s=1)
                client = await stack.enter_async_context(search(postgres=settings))
                await _until(client, HEALTH.SERVING)

            await _until(client, HEALTH.NOT_SERVING)
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await client.search()
            assert failure.value.code() == grpc.StatusCode.UNAVAILABLE
            assert reason_of(failure) == "DATABASE_UNAVAILABLE"

            async with socket_proxy(Path(directory), database_dsn):
                await _until(client, HEALTH.SERVING)
                assert not (await client.search()).degraded


async def test_the_process_serves_and_stops_cleanly_on_sigterm(database_dsn: str) -> None:
    [port] = free_ports(1)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.search",
        env={
            **os.environ,
            "KBMESH_SEARCH_POSTGRES__DSN": database_dsn,
            "KBMESH_SEARCH_AUTH__MODE": "off",
            "KBMESH_SEARCH_GRPC__PORT": str(port),
        },
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await health_of(channel, wait_for_ready=True, timeout=30)
            stub = search_pb2_grpc.SearchServiceStub(channel)
            assert (await stub.KbSearch(search_pb2.KbSearchRequest(query="churn"), timeout=20)).degraded
        process.send_signal(signal.SIGTERM)
        output, _ = await asyncio.wait_for(process.communicate(), 20)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert process.returncode == 0
    assert b"churn" not in output


async def _until(client: Client, status: int) -> None:
    async with asyncio.timeout(20):
        while await client.health() != status:
            await asyncio.sleep(0.02)
