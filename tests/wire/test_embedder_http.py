"""The embedder's OpenAI-shaped routes: a real HTTP server beside the gRPC one, over one queue and one model."""

import asyncio
import base64
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

from deploy.embedded.ports import free_ports
from kbmesh.auth import Authenticator, AuthMode, AuthSettings
from kbmesh.embedding.v1 import embedding_pb2, embedding_pb2_grpc
from kbmesh.errors import Misconfigured
from kbmesh.http import HttpSettings, serve_http
from kbmesh.messaging import KafkaSettings
from kbmesh.postgres import PostgresSettings
from kbmesh.rpc import GrpcServer, GrpcSettings, serve
from services.embedder.adapters.encode_queue import EncodeQueue
from services.embedder.bootstrap import bootstrap
from services.embedder.domain.encoding import InputType, Tokens, Vectors
from services.embedder.domain.spaces import Space
from services.embedder.entrypoints.grpc import SERVICE, EmbeddingServicer, register
from services.embedder.entrypoints.http import MAX_BODY_BYTES, EmbeddingApi, create_app
from services.embedder.handlers.embedding import MAX_MANY, MAX_TEXTS
from services.embedder.settings import EmbedderSettings, ModelSettings
from tests.support.gateway import ALICE, AUTH, bearer
from tests.support.vectors import OneSpace

MODEL = "acme/letters"
SPACE = Space(MODEL, 6)
OFF = AuthSettings(mode=AuthMode.OFF)
DIMENSIONS = 8


class LetterEncoder:
    """A text is its letters; waits while `open` is not set."""

    dimensions = DIMENSIONS

    def __init__(self) -> None:
        self.encoded = 0
        self.entered = threading.Event()
        self.open = threading.Event()
        self.open.set()

    def tokenize(self, texts: Sequence[str], input_type: InputType) -> list[Tokens]:
        return [Tokens((int(input_type is InputType.QUERY), *map(ord, text))) for text in texts]

    def encode(self, tokens: Sequence[Tokens]) -> Vectors:
        self.entered.set()
        assert self.open.wait(10)
        self.encoded += len(tokens)
        vectors = np.array([np.random.default_rng(text.ids).normal(size=DIMENSIONS) for text in tokens])
        vectors[[ord("\N{SKULL}") in text.ids for text in tokens]] = np.nan
        unit: Vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
        return unit


@dataclass
class Embedder:
    encoder: LetterEncoder
    server: GrpcServer
    http: httpx.AsyncClient
    channel: grpc.aio.Channel

    async def post(self, input: Any = "a text", *, model: Any = MODEL, **fields: Any) -> httpx.Response:
        return await self.http.post("/v1/embeddings", json={"input": input, "model": model} | fields)

    async def embed(self, texts: list[str], input_type: embedding_pb2.InputType.ValueType) -> list[list[float]]:
        """Over gRPC."""
        request = embedding_pb2.EmbedRequest(texts=texts, input_type=input_type)
        answer = await embedding_pb2_grpc.EmbeddingServiceStub(self.channel).Embed(request, timeout=10)
        return [list(embedding.values) for embedding in answer.embeddings]


@asynccontextmanager
async def embedding(
    *, auth: AuthSettings = OFF, loaded: bool = True, max_waiting_texts: int = 256
) -> AsyncIterator[Embedder]:
    encoder, servicer = LetterEncoder(), EmbeddingServicer()
    async with (
        EncodeQueue(max_waiting_texts=max_waiting_texts).running() as queue,
        serve(GrpcSettings(), auth, partial(register, servicer=servicer), [SERVICE]) as server,
    ):
        api = EmbeddingApi(Authenticator(auth), lambda: server.serving)
        if loaded:
            models = {MODEL: await queue.load(lambda: encoder)}
            servicer.open(OneSpace(SPACE), models)
            api.open(OneSpace(SPACE), models)
        async with (
            serve_http(create_app(api), HttpSettings()) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as http,
            grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        ):
            yield Embedder(encoder, server, http, channel)


@pytest.fixture
async def embedder() -> AsyncIterator[Embedder]:
    async with embedding() as running:
        yield running


def vectors_of(answer: httpx.Response) -> list[Any]:
    assert answer.status_code == 200, answer.text
    return [item["embedding"] for item in answer.json()["data"]]


def told(answer: httpx.Response) -> tuple[int, str, str | None]:
    """The status of an error, its code, and the field that it is about."""
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "code", "param"}
    assert error["message"]
    return answer.status_code, error["code"], error["param"]


async def test_the_answer_has_the_form_that_clients_of_openai_read(embedder: Embedder) -> None:
    answer = await embedder.post(["abc", "de"], user="somebody")

    body = answer.json()
    assert answer.headers["content-type"] == "application/json"
    assert (body["object"], body["model"]) == ("list", MODEL)
    assert [(item["object"], item["index"], len(item["embedding"])) for item in body["data"]] == [
        ("embedding", 0, DIMENSIONS),
        ("embedding", 1, DIMENSIONS),
    ]
    assert body["usage"] == {"prompt_tokens": 7, "total_tokens": 7}


async def test_floats_base64_and_grpc_agree_for_both_sides_of_a_search(embedder: Embedder) -> None:
    texts = ["one", "zwei", "三"]
    sides: list[tuple[dict[str, str], embedding_pb2.InputType.ValueType]] = [
        ({}, embedding_pb2.INPUT_TYPE_DOCUMENT),
        ({"input_type": "document"}, embedding_pb2.INPUT_TYPE_DOCUMENT),
        ({"input_type": "query"}, embedding_pb2.INPUT_TYPE_QUERY),
    ]
    for fields, input_type in sides:
        over_grpc = await embedder.embed(texts, input_type)

        floats = vectors_of(await embedder.post(texts, model=SPACE.id, **fields))
        packed = vectors_of(await embedder.post(texts, model=SPACE.id, encoding_format="base64", **fields))

        assert np.array_equal(np.array(floats, np.float32), np.array(over_grpc, np.float32))
        assert [np.frombuffer(base64.b64decode(row), "<f4").tolist() for row in packed] == over_grpc


async def test_as_many_texts_as_openai_takes_come_back_in_order(embedder: Embedder) -> None:
    texts = [f"text {number}" for number in range(MAX_MANY)]

    vectors = vectors_of(await embedder.post(texts))

    alone = [vectors_of(await embedder.post(texts[number]))[0] for number in (0, 31, 32, 1000, MAX_MANY - 1)]
    assert len(vectors) == MAX_MANY
    assert [vectors[number] for number in (0, 31, 32, 1000, MAX_MANY - 1)] == alone


async def test_fewer_dimensions_are_the_first_at_unit_length(embedder: Embedder) -> None:
    [whole] = vectors_of(await embedder.post())

    for model, dimensions in ((MODEL, 3), (SPACE.id, 3), (MODEL, DIMENSIONS), (SPACE.id, SPACE.dimensions)):
        [cut] = vectors_of(await embedder.post(model=model, dimensions=dimensions))
        expected = np.array(whole[:dimensions]) / np.linalg.norm(whole[:dimensions])
        assert cut == pytest.approx(expected.tolist(), abs=1e-6)


async def test_models_and_spaces_are_listed_and_each_of_them_can_be_asked_for(embedder: Embedder) -> None:
    listed = (await embedder.http.get("/v1/models")).json()

    assert listed["object"] == "list"
    assert {item["id"]: item["dimensions"] for item in listed["data"]} == {MODEL: DIMENSIONS, SPACE.id: 6}
    for item in listed["data"]:
        assert (item["object"], item["owned_by"]) == ("model", "kbmesh")
        assert len(vectors_of(await embedder.post(model=item["id"]))[0]) == item["dimensions"]


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"input": []}, "bad_text_count", "input"),
    ({"input": ["a"] * (MAX_MANY + 1)}, "bad_text_count", "input"),
    ({"input": ""}, "empty_text", "input"),
    ({"input": [*["a"] * 40, " \n"]}, "empty_text", "input"),
    ({"input": "a" * 32_769}, "text_too_long", "input"),
    ({"input": [1, 2]}, "tokens_not_supported", "input"),
    ({"input": [[1, 2], [3]]}, "tokens_not_supported", "input"),
    ({"input": None}, "invalid_request", "input"),
    ({"input": {"text": "a"}}, "invalid_request", "input"),
    ({"input": ["a", None]}, "invalid_request", "input"),
    ({"model": None}, "invalid_request", "model"),
    ({"model": "m" * 257}, "invalid_request", "model"),
    ({"dimensions": 0}, "invalid_request", "dimensions"),
    ({"dimensions": DIMENSIONS + 1}, "bad_dimensions", "dimensions"),
    ({"dimensions": 7, "model": SPACE.id}, "bad_dimensions", "dimensions"),
    ({"encoding_format": "int8"}, "invalid_request", "encoding_format"),
    ({"input_type": "passage"}, "invalid_request", "input_type"),
]


async def test_what_cannot_be_meant_is_refused_with_the_field(embedder: Embedder) -> None:
    for fields, code, param in REFUSED:
        answer = await embedder.post(**fields)
        assert told(answer) == (400, code, param), fields
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert embedder.encoder.encoded == 0

    blank = await embedder.post([*["a"] * 40, ""])
    assert blank.json()["error"]["message"] == "text 40 is empty"  # of the whole request, not of a part


async def test_a_body_that_is_no_request_is_refused(embedder: Embedder) -> None:
    no_text = b'{"model": "\\ud800", "input": "a"}'
    for body in (b"", b"{", b"[]", b'"a"', no_text, b"\xff", b"[" * 100_000):
        answer = await embedder.http.post("/v1/embeddings", content=body)
        assert told(answer)[:2] == (400, "invalid_request"), body[:40]


async def test_an_unknown_model_is_not_found(embedder: Embedder) -> None:
    for model in ("", "text-embedding-3-small", "other_6", MODEL.upper()):
        assert told(await embedder.post(model=model)) == (404, "model_not_found", "model"), model


async def test_other_paths_answer_in_the_same_form(embedder: Embedder) -> None:
    assert told(await embedder.http.get("/v1/completions")) == (404, "not_found", None)
    assert told(await embedder.http.get("/v1/embeddings")) == (405, "method_not_allowed", None)


async def test_a_body_over_the_limit_is_refused_whether_it_says_its_length_or_not(embedder: Embedder) -> None:
    async def in_parts() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b" " * (MAX_BODY_BYTES // 4)

    for content in (b" " * (MAX_BODY_BYTES + 1), in_parts()):
        answer = await embedder.http.post("/v1/embeddings", content=content)
        assert told(answer) == (413, "too_large", None)


async def test_a_vector_that_is_no_number_is_an_error_and_the_next_request_works(embedder: Embedder) -> None:
    answer = await embedder.post("\N{SKULL}")

    assert told(answer) == (500, "bad_vector", None)
    assert answer.json()["error"]["type"] == "server_error"
    assert vectors_of(await embedder.post())


async def test_a_token_is_needed_before_anything_is_read() -> None:
    async with embedding(auth=AUTH, loaded=False) as embedder:
        refused = await embedder.http.post("/v1/embeddings", content=b" " * (MAX_BODY_BYTES + 1))
        listed = await embedder.http.get("/v1/models")
        bad = await embedder.http.get("/v1/models", headers={"Authorization": "Bearer no.such.token"})
        embedder.http.headers.update(bearer(ALICE))
        known = await embedder.post()

    assert told(refused) == told(listed) == (401, "token_missing", None)
    assert told(bad) == (401, "token_invalid", None)
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.json()["error"]["type"] == "authentication_error"
    assert known.status_code == 503


async def test_while_the_model_is_loading_the_answer_is_to_try_again() -> None:
    async with embedding(loaded=False) as embedder:
        answers = [await embedder.post(), await embedder.http.get("/v1/models")]

    for answer in answers:
        assert told(answer) == (503, "model_loading", None)
        assert int(answer.headers["retry-after"]) > 0


async def test_too_many_waiting_texts_are_refused_and_a_request_of_many_parts_keeps_its_place() -> None:
    async with embedding(max_waiting_texts=MAX_TEXTS) as embedder:
        embedder.encoder.open.clear()
        many = asyncio.create_task(embedder.post(["a"] * (3 * MAX_TEXTS)))
        await asyncio.to_thread(embedder.encoder.entered.wait, 10)
        refused = await embedder.post()
        embedder.encoder.open.set()

        assert len(vectors_of(await many)) == 3 * MAX_TEXTS

    assert told(refused) == (429, "resource_exhausted", None)
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert int(refused.headers["retry-after"]) > 0


async def test_for_a_client_that_has_gone_no_further_part_is_encoded(embedder: Embedder) -> None:
    embedder.encoder.open.clear()
    gone = asyncio.create_task(embedder.post(["a"] * MAX_MANY))
    await asyncio.to_thread(embedder.encoder.entered.wait, 10)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    # A round trip of another connection: the server has seen by now that the first one was closed.
    await embedder.http.get("/health/live")
    embedder.encoder.open.set()

    # Of parts that would take turns with those of the first.
    await embedder.post(["b"] * (10 * MAX_TEXTS))

    assert embedder.encoder.encoded <= 12 * MAX_TEXTS


async def test_health_is_that_of_grpc_and_needs_no_token() -> None:
    async with embedding(auth=AUTH) as embedder:
        live = await embedder.http.get("/health/live")
        answers = []
        for serving in (False, True, False):
            await embedder.server.set_serving(serving)
            answers.append(await embedder.http.get("/health/ready"))

    assert live.status_code == 204
    assert [answer.status_code for answer in answers] == [503, 200, 503]
    assert [answer.json() for answer in answers] == [{"model": "not serving"}, {}, {"model": "not serving"}]


def settings(**changes: Any) -> EmbedderSettings:
    """Of a service without a model, which opens neither database nor broker."""
    [port] = free_ports(1)
    values: dict[str, Any] = {
        "postgres": PostgresSettings(dsn="postgresql://nowhere/kbmesh"),
        "kafka": KafkaSettings(bootstrap_servers="nowhere:9092"),
        "auth": OFF,
        "grpc": GrpcSettings(),
        "http": HttpSettings(port=port),
        "model": ModelSettings(provider="off"),
    }
    return EmbedderSettings(**values | changes)


async def test_without_a_model_the_service_says_that_it_cannot_serve() -> None:
    without = settings()
    async with (
        bootstrap(without),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{without.http.port}", timeout=10) as http,
    ):
        answer = await http.post("/v1/embeddings", json={"model": MODEL, "input": "a"})
        ready = await http.get("/health/ready")

    assert told(answer) == (503, "model_loading", None)
    assert ready.status_code == 503


async def test_without_authentication_it_listens_on_loopback_only() -> None:
    with pytest.raises(Misconfigured, match="loopback"):
        async with bootstrap(settings(http=HttpSettings(host="0.0.0.0"))):  # noqa: S104 - what is refused
            pass
