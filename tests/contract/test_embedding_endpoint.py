"""What becomes of every answer that an endpoint for embeddings may give."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from deploy.embedded.ports import free_ports
from kbmesh.errors import InvalidArgument, KbmeshError, Misconfigured, ResourceExhausted, Unavailable
from services.embedder.adapters import openai as adapter
from services.embedder.adapters.openai import TRIES, Endpoint, OpenAIEncoder, open_endpoint
from services.embedder.domain.encoding import BadVector, InputType, Lane, Vectors, check_vectors
from tests.support.endpoint import (
    DIMENSIONS,
    Answer,
    Cut,
    EmbeddingsEndpoint,
    Hang,
    answering,
    embeddings,
    vectors,
)

QUERY, DOCUMENT = InputType.QUERY, InputType.DOCUMENT
CALLER, FRESH, REFILL = Lane.CALLER, Lane.FRESH, Lane.REFILL


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "BACKOFF_S", 0.01)


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingsEndpoint]:
    async with answering() as endpoint:
        yield endpoint


@pytest.fixture
async def encoder(server: EmbeddingsEndpoint) -> AsyncIterator[OpenAIEncoder]:
    async with open_endpoint(Endpoint(server.url, "m")) as encoder:
        server.requests.clear()
        yield encoder


async def encode(encoder: OpenAIEncoder, *texts: str, lane: Lane = FRESH) -> Vectors:
    return (await encoder.encode(texts or ("text",), DOCUMENT, lane)).vectors


async def code_of(encoder: OpenAIEncoder, *texts: str) -> str:
    with pytest.raises(KbmeshError) as raised:
        await encode(encoder, *texts)
    assert isinstance(raised.value, Unavailable) == (raised.value.code != "text_refused")
    return raised.value.code


async def test_a_request_says_what_the_settings_say(server: EmbeddingsEndpoint) -> None:
    endpoint = Endpoint(
        server.url, "their-name", SecretStr("sk-1"), dimensions=DIMENSIONS, prompts={QUERY: "query: "}, max_chars=3
    )
    async with open_endpoint(endpoint) as encoder:
        query = await encoder.encode(["what", "é東🙂"], QUERY, CALLER)
        await encoder.encode(["text"], DOCUMENT, FRESH)
    assert encoder.dimensions == DIMENSIONS
    assert [request["input"] for _, request in server.requests[1:]] == [["query: wha", "query: é東🙂"], ["tex"]]
    for headers, request in server.requests:
        assert headers["authorization"] == "Bearer sk-1"
        assert (request["model"], request["dimensions"]) == ("their-name", DIMENSIONS)
    assert (query.truncated, query.token_counts) == ((True, False), (0, 0))


async def test_vectors_come_back_in_order_and_at_unit_length(
    server: EmbeddingsEndpoint, encoder: OpenAIEncoder
) -> None:
    server.script = [embeddings([[3, 4, 0, 0], [0, 0, 0, 5]], order=[1, 0])]
    assert (await encode(encoder, "a", "b")).tolist() == [pytest.approx([0.6, 0.8, 0, 0]), [0, 0, 0, 1]]
    assert set(server.requests[0][1]) == {"model", "input"}


async def test_vectors_may_come_as_base64(server: EmbeddingsEndpoint, encoder: OpenAIEncoder) -> None:
    rows = [base64.b64encode(np.array(row, "<f4").tobytes()).decode() for row in ([2, 0, 0, 0], [0, 0, 3, 0])]
    server.script = [embeddings(rows)]
    assert (await encode(encoder, "a", "b")).tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]


async def test_more_texts_than_one_request_may_hold_are_sent_in_several(server: EmbeddingsEndpoint) -> None:
    async with open_endpoint(Endpoint(server.url, "m", batch_texts=3)) as encoder:
        encoded = await encode(encoder, *("a" * n for n in range(1, 9)))
    assert server.batches == [1, 3, 3, 2]
    assert (encoded[:, 0] / encoded[:, 1]).tolist() == pytest.approx(range(1, 9))


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer(500), "embedding_endpoint_unavailable"),
        (Answer(503), "embedding_endpoint_unavailable"),
        (Answer(429), "embedding_endpoint_busy"),
        (Cut(), "embedding_endpoint_unavailable"),
    ],
    ids=["500", "503", "429", "cut off"],
)
async def test_an_outage_is_tried_again_a_few_times_and_then_reported(
    server: EmbeddingsEndpoint, encoder: OpenAIEncoder, answer: Answer | Cut, code: str
) -> None:
    server.script = [answer] * (TRIES - 1)
    assert (await encode(encoder)).shape == (1, DIMENSIONS)
    server.script = [answer] * TRIES
    assert await code_of(encoder) == code
    assert len(server.requests) == 2 * TRIES


async def test_no_answer_in_time_is_an_outage(server: EmbeddingsEndpoint) -> None:
    async with open_endpoint(Endpoint(server.url, "m", timeout_s=0.1)) as encoder:
        server.script = [Hang()] * TRIES
        assert await code_of(encoder) == "embedding_endpoint_unavailable"
    assert server.waiting == TRIES


async def test_nobody_who_listens_is_an_outage() -> None:
    [port] = free_ports(1)
    with pytest.raises(Unavailable, match="embedding_endpoint_unavailable"):
        async with open_endpoint(Endpoint(f"http://127.0.0.1:{port}/", "m")):
            pass


async def test_the_time_that_the_endpoint_asks_for_is_waited(
    server: EmbeddingsEndpoint, encoder: OpenAIEncoder
) -> None:
    loop = asyncio.get_running_loop()
    open_at = loop.time() + 0.9
    busy = Answer(429, headers={"retry-after": "1"})
    server.then = lambda texts: vectors(texts) if loop.time() > open_at else busy
    assert (await encode(encoder)).shape == (1, DIMENSIONS)
    assert len(server.requests) == 2


async def test_who_asks_for_a_long_time_is_left_alone_for_as_long(
    server: EmbeddingsEndpoint, encoder: OpenAIEncoder
) -> None:
    server.script = [Answer(503, headers={"retry-after": "60"})]
    assert await code_of(encoder) == "embedding_endpoint_unavailable"
    assert await code_of(encoder) == "circuit_open"
    assert len(server.requests) == 1


def test_a_time_to_wait_is_given_in_seconds_or_as_a_date() -> None:
    def read(value: str) -> float | None:
        return adapter._retry_after_s(httpx.Headers({"retry-after": value}))

    now = datetime.now(UTC)
    later = read(format_datetime(now + timedelta(seconds=100), usegmt=True))
    assert later is not None
    assert 90 < later <= 100
    assert read("Sun, 06 Nov 1994 08:49:37 GMT") == 0
    assert [read(value) for value in ("7", "0", "", "soon", "-1", "1.5")] == [7, 0, None, None, None, None]
    assert adapter._retry_after_s(httpx.Headers()) is None


@pytest.mark.parametrize("status", [301, 401, 403, 404])
async def test_a_refusal_is_not_tried_again(
    server: EmbeddingsEndpoint, encoder: OpenAIEncoder, status: int
) -> None:
    server.script = [Answer(status, headers={"location": server.url})]
    assert await code_of(encoder) == "embedding_endpoint_refused"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_texts_that_are_not_taken_are_no_outage_and_not_tried_again(
    server: EmbeddingsEndpoint, encoder: OpenAIEncoder, status: int
) -> None:
    server.script = [Answer(status, b'{"error": "your text was: secret"}')] * 20
    with pytest.raises(InvalidArgument) as raised:
        await encode(encoder, "secret")
    assert raised.value.code == "text_refused"
    assert "secret" not in raised.value.detail
    for _ in range(19):
        assert await code_of(encoder) == "text_refused"
    assert len(server.requests) == 20


def _numbered(*indices: int) -> bytes:
    return json.dumps({"data": [{"index": index, "embedding": [1, 0, 0, 0]} for index in indices]}).encode()


GARBAGE = {
    "HTML": Answer(body=b"<html>"),
    "nested": Answer(body=b"[" * 100_000),
    "another form": Answer(body=b'{"vectors": []}'),
    "too few": embeddings([[1, 0, 0, 0]]),
    "too many": embeddings([[1, 0, 0, 0]] * 3),
    "uneven": embeddings([[1, 0, 0, 0], [1, 0, 0]]),
    "other dimensions": embeddings([[1, 0, 0]] * 2),
    "empty vectors": embeddings([[]] * 2),
    "strings": embeddings([["1", "0", "0", "0"]] * 2),
    "booleans": embeddings([[True, False, False, False]] * 2),
    "base64 of no floats": embeddings(["AAAA"] * 2),
    "no base64": embeddings(["not base64"] * 2),
    "an index twice": Answer(body=_numbered(0, 0)),
    "an index left out": Answer(body=_numbered(1, 2)),
    "no index": Answer(body=b'{"data": [{"embedding": [1, 0, 0, 0]}, {"embedding": [1, 0, 0, 0]}]}'),
    "too long": Answer(body=b" " * (5 * adapter.BYTES_PER_TEXT)),
    "packed": Answer(body=b"\x1f\x8b", headers={"content-encoding": "gzip"}),
}


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE.keys())
async def test_an_answer_that_makes_no_sense_is_an_outage_too(
    server: EmbeddingsEndpoint, encoder: OpenAIEncoder, answer: Answer
) -> None:
    server.script = [answer]
    assert await code_of(encoder, "a", "b") == "embedding_endpoint_garbage"
    assert len(server.requests) == 1


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), 1e300, 0])
async def test_what_is_no_direction_is_left_for_the_caller_to_refuse(
    server: EmbeddingsEndpoint, encoder: OpenAIEncoder, value: float | None
) -> None:
    server.script = [embeddings([[1, 0, 0, 0], [value] * DIMENSIONS])]
    found = await encode(encoder, "a", "b")
    check_vectors(found[:1], dimensions=DIMENSIONS)
    with pytest.raises(BadVector):
        check_vectors(found, dimensions=DIMENSIONS)


async def test_after_outages_in_a_row_the_endpoint_is_left_alone(
    server: EmbeddingsEndpoint, encoder: OpenAIEncoder
) -> None:
    server.then = lambda _: Answer(401)
    assert [await code_of(encoder) for _ in range(6)] == ["embedding_endpoint_refused"] * 5 + ["circuit_open"]
    assert len(server.requests) == 5


async def test_background_work_leaves_a_request_to_callers(server: EmbeddingsEndpoint) -> None:
    async with open_endpoint(Endpoint(server.url, "m", requests_in_flight=3)) as encoder:
        server.script = [Hang(), Hang()]
        background = [asyncio.create_task(encode(encoder, lane=lane)) for lane in (REFILL, REFILL, FRESH, FRESH)]
        async with asyncio.timeout(10):
            while server.waiting < 2:
                await asyncio.sleep(0.01)
            assert (await encode(encoder, "query", lane=CALLER)).shape == (1, DIMENSIONS)
        assert len(server.requests) == 4
        assert not any(task.done() for task in background)
        server.release.set()
        await asyncio.gather(*background)


async def test_more_callers_than_may_wait_are_refused(server: EmbeddingsEndpoint) -> None:
    async with open_endpoint(Endpoint(server.url, "m", max_waiting_texts=2)) as encoder:
        server.script = [Hang()]
        first = asyncio.create_task(encode(encoder, "a", "b", lane=CALLER))
        async with asyncio.timeout(10):
            while not server.waiting:
                await asyncio.sleep(0.01)
        with pytest.raises(ResourceExhausted):
            await encode(encoder, lane=CALLER)
        await encode(encoder, lane=FRESH)
        server.release.set()
        await first
        await encode(encoder, lane=CALLER)


@pytest.mark.parametrize(
    ("answer", "error", "code"),
    [
        (Answer(400), Misconfigured, "embedding_endpoint_refused"),
        (Answer(401), Unavailable, "embedding_endpoint_refused"),
        (embeddings([[1, 0]]), Misconfigured, "embedding_endpoint_refused"),
        (embeddings([[]]), Unavailable, "embedding_endpoint_garbage"),
    ],
    ids=["refuses", "refuses the key", "gives other dimensions than asked for", "gives empty vectors"],
)
async def test_an_endpoint_that_cannot_be_used_is_found_out_at_the_start(
    server: EmbeddingsEndpoint, answer: Answer, error: type[KbmeshError], code: str
) -> None:
    server.script = [answer]
    with pytest.raises(error) as raised:
        async with open_endpoint(Endpoint(server.url, "m", dimensions=DIMENSIONS)):
            pass
    assert isinstance(raised.value, KbmeshError)
    assert raised.value.code == code


async def test_neither_key_nor_text_nor_path_is_in_logs_and_errors(server: EmbeddingsEndpoint) -> None:
    endpoint = Endpoint(f"{server.url}/secret-path?secret-query", "m", SecretStr("secret-key"))
    told: list[Any] = [endpoint.api_key]
    with capture_logs() as lines:
        async with open_endpoint(endpoint) as encoder:
            answers: Sequence[Answer | Cut] = [
                *[Answer(500)] * 3,
                Answer(401),
                Answer(400),
                Answer(body=b"secret"),
            ]
            server.script = list(answers)
            for _ in range(4):
                with pytest.raises(KbmeshError) as raised:
                    await encode(encoder, "secret text")
                told.append(raised.value)
    assert len(lines) == 3
    assert "secret" not in f"{lines} {told}"
