import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import grpc
import numpy as np
import pytest
from pydantic import SecretStr

from kbmesh.auth import AuthMode, AuthSettings
from kbmesh.embedding.v1 import embedding_pb2, embedding_pb2_grpc
from kbmesh.rpc import GrpcSettings, serve
from kbmesh.rpc.status import reason
from services.embedder.adapters.encode_queue import EncodeQueue
from services.embedder.domain.encoding import InputType, Tokens, Vectors
from services.embedder.domain.spaces import Space
from services.embedder.entrypoints.grpc import SERVICE, EmbeddingServicer, register
from tests.support.vectors import OneSpace

Embed = grpc.aio.UnaryUnaryMultiCallable[embedding_pb2.EmbedRequest, embedding_pb2.EmbedResponse]


SPACE = Space("test-model", 2)


class TypeEncoder:
    """Points one way for queries and another for documents; waits while `open` is not set."""

    dimensions = 2

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Event()

    def tokenize(self, texts: Sequence[str], input_type: InputType) -> list[Tokens]:
        kind = int(input_type is InputType.DOCUMENT)
        return [Tokens((kind, *map(len, text.split())), truncated=len(text) > 100) for text in texts]

    def encode(self, tokens: Sequence[Tokens]) -> Vectors:
        self.entered.set()
        assert self.open.wait(10)
        vectors = np.zeros((len(tokens), 2), np.float32)
        for row, text in zip(vectors, tokens, strict=True):
            row[text.ids[0]] = float("nan") if 13 in text.ids else 1
        return vectors


@asynccontextmanager
async def serving(servicer: EmbeddingServicer, auth: AuthSettings | None = None) -> AsyncIterator[Embed]:
    settings = auth or AuthSettings(mode=AuthMode.OFF)
    async with (
        serve(GrpcSettings(), settings, partial(register, servicer=servicer), [SERVICE]) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed


@asynccontextmanager
async def embedding(
    encoder: TypeEncoder, queue: EncodeQueue | None = None, auth: AuthSettings | None = None
) -> AsyncIterator[Embed]:
    servicer = EmbeddingServicer()
    async with (queue or EncodeQueue()).running() as running, serving(servicer, auth) as method:
        servicer.open(OneSpace(SPACE), {SPACE.model: await running.load(lambda: encoder)})
        yield method


async def refused(embed: Embed, *texts: str) -> tuple[grpc.StatusCode, str | None]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await embed(embedding_pb2.EmbedRequest(texts=texts), timeout=10)
    return error.value.code(), reason(cast(grpc.Call, error.value))


@pytest.fixture
def encoder() -> TypeEncoder:
    return TypeEncoder()


@pytest.fixture
async def embed(encoder: TypeEncoder) -> AsyncIterator[Embed]:
    async with embedding(encoder) as method:
        yield method


async def test_each_text_gets_its_vector_and_the_space_is_named(embed: Embed) -> None:
    texts = ["one", "two words", "w" * 101]
    answer = await embed(embedding_pb2.EmbedRequest(texts=texts), timeout=10)
    assert (answer.space_id, answer.model, answer.dimensions) == ("test_model_2", "test-model", 2)
    assert [list(embedding.values) for embedding in answer.embeddings] == [[1, 0]] * 3
    assert [embedding.token_count for embedding in answer.embeddings] == [2, 3, 2]
    assert [embedding.truncated for embedding in answer.embeddings] == [False, False, True]


@pytest.mark.parametrize(
    ("input_type", "expected"),
    [
        (embedding_pb2.INPUT_TYPE_UNSPECIFIED, [1, 0]),
        (embedding_pb2.INPUT_TYPE_QUERY, [1, 0]),
        (embedding_pb2.INPUT_TYPE_DOCUMENT, [0, 1]),
    ],
)
async def test_the_two_sides_of_a_search_are_told_apart(
    embed: Embed, input_type: embedding_pb2.InputType.ValueType, expected: list[float]
) -> None:
    answer = await embed(embedding_pb2.EmbedRequest(texts=["one"], input_type=input_type), timeout=10)
    assert list(answer.embeddings[0].values) == expected


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        ([], "BAD_TEXT_COUNT"),
        (["a"] * 33, "BAD_TEXT_COUNT"),
        (["a", "  "], "EMPTY_TEXT"),
        (["a" * 32_769], "TEXT_TOO_LONG"),
    ],
    ids=["none", "too many", "blank", "too long"],
)
async def test_bad_requests_are_invalid_arguments_with_a_reason(embed: Embed, texts: list[str], code: str) -> None:
    assert await refused(embed, *texts) == (grpc.StatusCode.INVALID_ARGUMENT, code)


async def test_the_largest_request_fits(embed: Embed) -> None:
    answer = await embed(embedding_pb2.EmbedRequest(texts=["a" * 32_768] * 32), timeout=10)
    assert len(answer.embeddings) == 32


async def test_a_vector_that_is_no_number_is_an_internal_error_and_the_next_call_works(embed: Embed) -> None:
    assert await refused(embed, "a" * 13) == (grpc.StatusCode.INTERNAL, "BAD_VECTOR")
    assert (await embed(embedding_pb2.EmbedRequest(texts=["fine"]), timeout=10)).dimensions == 2


async def test_a_model_that_is_loading_is_unavailable() -> None:
    async with serving(EmbeddingServicer()) as embed:
        assert await refused(embed, "text") == (grpc.StatusCode.UNAVAILABLE, "MODEL_LOADING")


async def test_too_many_waiting_texts_are_refused(encoder: TypeEncoder) -> None:
    encoder.open.clear()
    async with embedding(encoder, EncodeQueue(max_waiting_texts=2)) as embed:
        waiting = asyncio.create_task(_call(embed, "one", "two"))
        await asyncio.to_thread(encoder.entered.wait, 10)
        assert await refused(embed, "three") == (grpc.StatusCode.RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED")
        encoder.open.set()
        assert len((await waiting).embeddings) == 2


async def test_a_call_without_a_token_is_unauthenticated(encoder: TypeEncoder) -> None:
    async with embedding(encoder, auth=AuthSettings(secret=SecretStr("s" * 32))) as embed:
        code, _ = await refused(embed, "text")
    assert code is grpc.StatusCode.UNAUTHENTICATED


async def _call(embed: Embed, *texts: str) -> embedding_pb2.EmbedResponse:
    return await embed(embedding_pb2.EmbedRequest(texts=texts), timeout=10)


async def test_a_caller_may_name_the_space_and_another_than_there_is_is_not_found(embed: Embed) -> None:
    request = embedding_pb2.EmbedRequest(texts=["one"], space_id=SPACE.id)
    assert (await embed(request, timeout=10)).space_id == SPACE.id
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await embed(embedding_pb2.EmbedRequest(texts=["one"], space_id="other_2"), timeout=10)
    assert error.value.code() is grpc.StatusCode.NOT_FOUND
