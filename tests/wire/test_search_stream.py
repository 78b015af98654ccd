"""Many searches on one connection: real service, real database, an embedding stub."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest
from google.rpc import code_pb2

from kbmesh.auth import Authenticator, Principal
from kbmesh.errors import Unauthenticated
from kbmesh.postgres import Pool, PostgresSettings, transaction
from kbmesh.rpc import GrpcSettings
from kbmesh.search.v1 import search_pb2, search_pb2_grpc
from tests.support.search import Corpus, Text
from tests.support.search_service import ANN, Client, EmbeddingStub, reason_of, running_search, token

BOB = uuid4()


class HangingEmbedding(EmbeddingStub):
    """Does not answer "hang"."""

    def __init__(self) -> None:
        super().__init__()
        self.hanging = asyncio.Event()
        self.ended = asyncio.Event()

    async def Embed(self, request: Any, context: Any) -> Any:
        if list(request.texts) != ["hang"]:
            return await super().Embed(request, context)
        self.hanging.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


@pytest.fixture
def embedding() -> HangingEmbedding:
    return HangingEmbedding()


@pytest.fixture
async def client(
    pool: Pool, postgres_settings: PostgresSettings, embedding: HangingEmbedding
) -> AsyncIterator[Client]:
    """With a document of Ann's and one of Bob's."""
    corpus = Corpus(pool)
    await corpus.create_space()
    for user, name in ((ANN, "ann.txt"), (BOB, "bob.txt")):
        await corpus.add_document(await corpus.add_base(user), Text("churn"), filename=name)
    async with running_search(postgres_settings, embedding) as client:
        yield client


def asked(id: str, query: str = "churn", **fields: Any) -> search_pb2.StreamSearchRequest:
    return search_pb2.StreamSearchRequest(id=id, search=search_pb2.KbSearchRequest(query=query, **fields))


def stream(client: Client, requests: Any, caller: UUID = ANN) -> Any:
    stub = search_pb2_grpc.SearchServiceStub(client.channel)
    return stub.StreamSearch(requests, metadata=token(caller), timeout=20)


async def answered(
    client: Client, requests: Iterable[search_pb2.StreamSearchRequest], caller: UUID = ANN
) -> dict[str, search_pb2.StreamSearchResponse]:
    return {answer.id: answer async for answer in stream(client, iter(requests), caller)}


async def test_each_search_is_answered_as_a_call_is_whatever_becomes_of_the_others(client: Client) -> None:
    refused = {"empty": asked("empty", " "), "limit": asked("limit", limit=99), "x" * 300: asked("x" * 300)}
    good = [asked(str(number), f"churn {number}") for number in range(12)]
    found = await answered(client, [*good[:6], *refused.values(), asked("channel", channel_id="none"), *good[6:]])

    assert set(found) == {*(one.id for one in good), "empty", "limit", "x" * 200, "channel"}
    for one in good:
        assert found[one.id].answer == await client.search(one.search.query)
        assert [passage.filename for passage in found[one.id].answer.passages] == ["ann.txt"]
    failures = {id: (found[id].failure.code, found[id].failure.reason) for id in ("empty", "limit", "channel")}
    assert failures == {
        "empty": (code_pb2.INVALID_ARGUMENT, "EMPTY_QUERY"),
        "limit": (code_pb2.INVALID_ARGUMENT, "LIMIT_OUT_OF_RANGE"),
        "channel": (code_pb2.NOT_FOUND, "CHANNEL_NOT_FOUND"),
    }
    assert found["x" * 200].failure.reason == "INVALID_ID"
    [passage] = (await answered(client, [asked("1")], BOB))["1"].answer.passages
    assert passage.filename == "bob.txt"
    assert await answered(client, []) == {}


async def test_a_stream_that_is_given_up_ends_its_searches(client: Client, embedding: HangingEmbedding) -> None:
    async def requests() -> AsyncIterator[search_pb2.StreamSearchRequest]:
        yield asked("1", "hang", mode=search_pb2.MODE_VECTOR)
        await asyncio.Event().wait()

    call = stream(client, requests())
    await asyncio.wait_for(embedding.hanging.wait(), 5)
    call.cancel()
    await asyncio.wait_for(embedding.ended.wait(), 5)


async def test_a_search_that_takes_too_long_fails_alone(
    pool: Pool, postgres_settings: PostgresSettings, client: Client, embedding: HangingEmbedding
) -> None:
    hasty = GrpcSettings(max_deadline_s=0.5)
    async with (
        running_search(postgres_settings, embedding, grpc=hasty) as hurried,
        transaction(pool) as conn,
    ):
        call = stream(hurried, None)
        await call.write(asked("1"))
        assert (await call.read()).HasField("answer")
        await conn.execute("LOCK TABLE chunks")
        await call.write(asked("2"))
        assert (await call.read()).failure.reason == "DEADLINE_EXCEEDED"
        await conn.execute("ROLLBACK; BEGIN")
        await call.write(asked("3"))
        assert (await call.read()).HasField("answer")
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF


async def test_a_stream_is_read_no_further_than_its_token_is_valid(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    expired = False
    authenticate = Authenticator.authenticate

    async def authenticated(self: Authenticator, authorization: str | None) -> Principal:
        if expired:
            raise Unauthenticated("the token has expired", code="token_expired")
        return await authenticate(self, authorization)

    monkeypatch.setattr(Authenticator, "authenticate", authenticated)
    call = stream(client, None)
    await call.write(asked("1"))
    assert (await call.read()).id == "1"
    expired = True
    await call.write(asked("2"))
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await call.read()
    assert (failure.value.code(), reason_of(failure)) == (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_EXPIRED")


@pytest.mark.parametrize(
    ("raw", "known", "reason"), [(b"\xff" * 10, True, "BAD_REQUEST"), (b"", False, "TOKEN_MISSING")]
)
async def test_bytes_that_are_no_request_and_callers_without_a_token_are_refused(
    client: Client, raw: bytes, known: bool, reason: str
) -> None:
    method: Any = client.channel.stream_stream("/kbmesh.search.v1.SearchService/StreamSearch")
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        async for _ in method(iter([raw]), metadata=token(ANN) if known else None, timeout=5):
            pass
    assert reason_of(failure) == reason
