"""A call that is over leaves nothing at work in the database, whatever it was waiting for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import grpc
import pytest

from kbmesh.postgres import Connection, Pool, PostgresSettings, transaction
from kbmesh.rpc import GrpcSettings
from kbmesh.search.v1 import context_pb2, search_pb2, search_pb2_grpc
from tests.support.search import Corpus, Text
from tests.support.search_service import ANN, Client, EmbeddingStub, reason_of, running_search, token

CONNECTIONS = 3
# Asked outside of the transaction that holds the lock, which would see the same all the time.
AT_WORK = """SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'kbmesh-search' AND state <> 'idle'"""

Ask = Callable[[Client, float | None], Awaitable[object]]


@pytest.fixture
def small(postgres_settings: PostgresSettings) -> PostgresSettings:
    return postgres_settings.model_copy(update={"max_size": CONNECTIONS})


@pytest.fixture
async def locked(pool: Pool) -> AsyncIterator[Connection]:
    """A connection that keeps everybody from reading chunks."""
    corpus = Corpus(pool)
    await corpus.create_space()
    await corpus.add_document(await corpus.add_base(ANN), Text("churn"))
    async with transaction(pool) as conn:
        await conn.execute("LOCK TABLE chunks")
        yield conn


async def kb_search(client: Client, timeout_s: float | None) -> object:
    stub = search_pb2_grpc.SearchServiceStub(client.channel)
    return await stub.KbSearch(search_pb2.KbSearchRequest(query="churn"), metadata=token(ANN), timeout=timeout_s)


async def retrieve_context(client: Client, timeout_s: float | None) -> object:
    stub = search_pb2_grpc.SearchServiceStub(client.channel)
    request = context_pb2.RetrieveContextRequest(query="churn")
    return await stub.RetrieveContext(request, metadata=token(ANN), timeout=timeout_s)


ASKS: list[Ask] = [kb_search, retrieve_context]


async def until_at_work(pool: Pool, count: int) -> None:
    async with asyncio.timeout(5):
        while await pool.fetchval(AT_WORK) != count:
            await asyncio.sleep(0.005)


async def overdue(call: Awaitable[object]) -> pytest.ExceptionInfo[grpc.aio.AioRpcError]:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await call
    assert failure.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    return failure


async def test_the_deadline_of_a_call_cancels_its_statements(
    pool: Pool, small: PostgresSettings, locked: Connection
) -> None:
    async with running_search(small, EmbeddingStub()) as client:
        # More than there are connections: some wait for a statement, the others for a connection.
        calls = [asyncio.create_task(overdue(ask(client, 1))) for ask in ASKS * CONNECTIONS]
        await until_at_work(pool, CONNECTIONS)
        await asyncio.gather(*calls)
        await until_at_work(pool, 0)
        await locked.execute("ROLLBACK; BEGIN")

        for ask in ASKS:
            assert await ask(client, 20)


async def test_the_deadline_of_the_server_does_so_for_callers_without_one(
    pool: Pool, small: PostgresSettings, locked: Connection
) -> None:
    async with running_search(small, EmbeddingStub(), grpc=GrpcSettings(max_deadline_s=0.3)) as client:
        for failure in await asyncio.gather(*(overdue(ask(client, None)) for ask in ASKS)):
            assert reason_of(failure) == "DEADLINE_EXCEEDED"
        await until_at_work(pool, 0)


async def test_a_statement_whose_cancellation_gets_lost_ends_all_the_same(
    pool: Pool, small: PostgresSettings, locked: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(**_: Any) -> None:
        pass

    monkeypatch.setattr(asyncpg.connect_utils, "_cancel", lost)
    async with running_search(small, EmbeddingStub(), grpc=GrpcSettings(max_deadline_s=0.5)) as client:
        await overdue(kb_search(client, 0.1))
        await until_at_work(pool, 1)
        await until_at_work(pool, 0)


async def test_a_deadline_that_has_passed_on_the_way_is_told_as_one(
    small: PostgresSettings, locked: Connection
) -> None:
    async with running_search(small, EmbeddingStub(), grpc=GrpcSettings(max_deadline_s=0)) as client:
        for ask in ASKS:
            assert reason_of(await overdue(ask(client, None))) == "DEADLINE_EXCEEDED"
