"""A model behind an endpoint that speaks OpenAI's embeddings API: Databricks, vLLM, TEI, OpenAI.

Source: https://platform.openai.com/docs/api-reference/embeddings/create
"""

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

import httpx
import numpy as np
import structlog
from pydantic import BaseModel, ConfigDict, SecretStr

from kbmesh.errors import InvalidArgument, Misconfigured, ResourceExhausted, Unavailable
from services.embedder.adapters.circuit_breaker import CircuitBreaker
from services.embedder.domain.encoding import Encoded, InputType, Lane, Vectors, unit

log = structlog.get_logger(__name__)

TRIES: Final = 3
BACKOFF_S: Final = 0.5
MAX_WAIT_S: Final = 10.0
"""Within one call; who asks for more is left alone for that long."""
MAX_PAUSE_S: Final = 300.0
FAILURES_IN_A_ROW: Final = 5
PAUSE_S: Final = 30.0
BYTES_PER_TEXT: Final = 128 * 1024
"""Of an answer: 4,000 dimensions of 32 characters each."""

_SLOW_DOWN: Final = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
_TEXTS_REFUSED: Final = {
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str
    """What requests are posted to."""
    model: str
    """What the endpoint knows the model by."""
    api_key: SecretStr | None = None
    dimensions: int | None = None
    """Asked for in each request; None: the model's own."""
    prompts: Mapping[InputType, str] | None = None
    """What is put before a text."""
    batch_texts: int = 32
    max_chars: int = 8000
    """Of a text; the rest is cut off."""
    timeout_s: float = 30
    """Of one try."""
    requests_in_flight: int = 4
    max_waiting_texts: int = 256
    """Of callers; more are refused."""

    @property
    def host(self) -> str:
        """All that logs and errors say of the address: its path and query may be somebody's secret."""
        return httpx.URL(self.url).host


class _Embedding(BaseModel):
    model_config = ConfigDict(strict=True)

    index: int
    embedding: list[float | None] | str
    """None is how some servers write what is not a number; a string holds float32 in little endian, as base64."""


class _Answer(BaseModel):
    data: list[_Embedding]


@asynccontextmanager
async def open_endpoint(endpoint: Endpoint) -> AsyncIterator["OpenAIEncoder"]:
    """
    Raises:
        Misconfigured: the endpoint refuses one short text, or gives another number of dimensions than asked for.
        Unavailable: it does not answer, or refuses the key.
    """
    headers = {"user-agent": "kbmesh", "accept-encoding": "identity"}
    if endpoint.api_key is not None:
        headers["authorization"] = f"Bearer {endpoint.api_key.get_secret_value()}"
    async with httpx.AsyncClient(
        headers=headers,
        timeout=endpoint.timeout_s,
        follow_redirects=False,
        # A proxy of the environment would read what is not encrypted.
        trust_env=endpoint.url.startswith("https:"),
        limits=httpx.Limits(max_connections=endpoint.requests_in_flight),
    ) as client:
        encoder = OpenAIEncoder(endpoint, client)
        await encoder.probe()
        yield encoder


class OpenAIEncoder:
    """Port TextEncoder. Outages are tried again for a short while and then raised as Unavailable.

    Callers go before background work: that leaves one of the requests in flight to them. Refilling has one at
    most.
    """

    def __init__(self, endpoint: Endpoint, client: httpx.AsyncClient) -> None:
        self.dimensions = 0
        self._endpoint = endpoint
        self._client = client
        self._breaker = CircuitBreaker(failures=FAILURES_IN_A_ROW, pause_s=PAUSE_S)
        self._requests = asyncio.Semaphore(endpoint.requests_in_flight)
        self._background = asyncio.Semaphore(max(1, endpoint.requests_in_flight - 1))
        self._refill = asyncio.Semaphore(1)
        self._waiting_texts = 0

    async def probe(self) -> None:
        """Learns the number of dimensions. Raises as open_endpoint."""
        try:
            self.dimensions = (await self._ask(["What is this table for?"])).shape[1]
        except InvalidArgument as error:
            raise Misconfigured(error.detail, code="embedding_endpoint_refused") from error
        asked = self._endpoint.dimensions or self.dimensions
        if self.dimensions != asked:
            raise Misconfigured(
                f"{self._endpoint.host} was asked for {asked} dimensions and gave {self.dimensions}",
                code="embedding_endpoint_refused",
            )

    async def encode(self, texts: Sequence[str], input_type: InputType, lane: Lane) -> Encoded:
        """As the port, in requests of `batch_texts`, one after the other.

        Raises:
            InvalidArgument: (`text_refused`) the endpoint does not take one of the texts.
        """
        limit, size = self._endpoint.max_chars, self._endpoint.batch_texts
        prompt = (self._endpoint.prompts or {}).get(input_type, "")
        inputs = [prompt + text[:limit] for text in texts]
        parts: list[Vectors] = []
        async with self._counted(len(texts), lane):
            for start in range(0, len(inputs), size):
                async with self._slot(lane):
                    with self._breaker.call():
                        vectors = await self._ask(inputs[start : start + size])
                        if vectors.shape[1] != self.dimensions:
                            raise self._garbage(f"vectors of {vectors.shape[1]} dimensions")
                parts.append(vectors)
        # Endpoints count the tokens of a request, not of a text.
        return Encoded(np.concatenate(parts), (0,) * len(texts), tuple(len(text) > limit for text in texts))

    @asynccontextmanager
    async def _counted(self, texts: int, lane: Lane) -> AsyncIterator[None]:
        if lane is not Lane.CALLER:
            yield
            return
        if self._waiting_texts + texts > self._endpoint.max_waiting_texts:
            raise ResourceExhausted(f"{self._waiting_texts} texts wait for the encoder already; try again later")
        self._waiting_texts += texts
        try:
            yield
        finally:
            self._waiting_texts -= texts

    @asynccontextmanager
    async def _slot(self, lane: Lane) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if lane is Lane.REFILL:
                await stack.enter_async_context(self._refill)
            if lane is not Lane.CALLER:
                await stack.enter_async_context(self._background)
            await stack.enter_async_context(self._requests)
            yield

    async def _ask(self, inputs: Sequence[str]) -> Vectors:
        """Unit vectors of one request, tried again while the endpoint does not answer."""
        for tried in range(1, TRIES + 1):
            wait_s = BACKOFF_S * 2 ** (tried - 1) * random.uniform(0.5, 1)  # noqa: S311 - jitter
            try:
                answer, body = await self._post(inputs)
            except (httpx.TransportError, TimeoutError) as error:
                failure = self._unavailable(f"does not answer ({type(error).__name__})")
            else:
                if answer.status_code == HTTPStatus.OK:
                    return self._read(body, len(inputs))
                failure = self._failure(answer.status_code)
                if answer.status_code in _SLOW_DOWN:
                    wait_s = _retry_after_s(answer.headers) or wait_s
            log.warning("embedding_endpoint_failed", host=self._endpoint.host, error=failure.detail, tried=tried)
            if wait_s > MAX_WAIT_S:
                self._breaker.open_for(min(wait_s, MAX_PAUSE_S))
                raise failure
            if tried < TRIES:
                await asyncio.sleep(wait_s)
        raise failure

    async def _post(self, inputs: Sequence[str]) -> tuple[httpx.Response, bytes]:
        """The answer, and its body if it is one of vectors: others may quote what was sent."""
        request: dict[str, Any] = {"model": self._endpoint.model, "input": inputs}
        if self._endpoint.dimensions is not None:
            request["dimensions"] = self._endpoint.dimensions
        body = bytearray()
        async with (
            asyncio.timeout(self._endpoint.timeout_s),
            self._client.stream("POST", self._endpoint.url, json=request) as answer,
        ):
            if answer.status_code == HTTPStatus.OK:
                async for part in answer.aiter_raw():
                    body += part
                    if len(body) > BYTES_PER_TEXT * (len(inputs) + 1):
                        raise self._garbage("an answer that is too long")
        return answer, bytes(body)

    def _read(self, body: bytes, count: int) -> Vectors:
        try:
            found = sorted(_Answer.model_validate_json(body).data, key=lambda one: one.index)
            vectors = np.array([_values(one.embedding) for one in found], np.float64)
        except ValueError:  # pydantic's, base64's, numpy's for rows of different length
            raise self._garbage("an answer of another form") from None
        if [one.index for one in found] != list(range(count)) or not vectors.size:
            raise self._garbage(f"{len(found)} vectors for {count} texts, or wrongly numbered or empty ones")
        return unit(vectors)

    def _failure(self, status: int) -> Unavailable:
        """What to raise once trying again has not helped. Raises what trying again cannot help."""
        if status in _TEXTS_REFUSED:
            raise InvalidArgument(
                f"{self._endpoint.host} answers a request for vectors with HTTP {status}", code="text_refused"
            )
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return Unavailable(f"{self._endpoint.host} takes no more requests", code="embedding_endpoint_busy")
        if status == HTTPStatus.REQUEST_TIMEOUT or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return self._unavailable(f"answers with HTTP {status}")
        raise Unavailable(
            f"{self._endpoint.host} answers with HTTP {status}: check its address, the key and the model's name",
            code="embedding_endpoint_refused",
        )

    def _unavailable(self, what: str) -> Unavailable:
        return Unavailable(f"{self._endpoint.host} {what}", code="embedding_endpoint_unavailable")

    def _garbage(self, what: str) -> Unavailable:
        return Unavailable(f"{self._endpoint.host} gave {what}", code="embedding_endpoint_garbage")


def _values(embedding: list[float | None] | str) -> Any:
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
    return embedding


def _retry_after_s(headers: httpx.Headers) -> float | None:
    """Seconds that a Retry-After asks for, given as such or as a date (RFC 9110, 10.2.3)."""
    value = headers.get("retry-after", "")
    if value.isdecimal():
        return float(value)
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())
