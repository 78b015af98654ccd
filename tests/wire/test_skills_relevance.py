"""Skills in the order of nearness to a question: the real service, with an embedding service of the test's own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from kbmesh.auth import AuthMode, AuthSettings
from kbmesh.embedding.v1 import embedding_pb2
from kbmesh.errors import ResourceExhausted
from kbmesh.postgres import PostgresSettings
from kbmesh.rpc import ChannelSettings, GrpcSettings, open_channel
from kbmesh.skills.v1 import skills_pb2 as pb
from kbmesh.skills.v1.skills_pb2_grpc import SkillsServiceStub
from services.skills.bootstrap import bootstrap
from services.skills.content.databricks_sql_patterns import SKILL
from services.skills.settings import SkillsSettings
from tests.support.rpc import Handle, raising, served
from tests.support.tokens import SECRET, token

TIMEOUT_S = 10
AUTH = AuthSettings(mode=AuthMode.HS256, secret=SecretStr(SECRET))
NOWHERE = "127.0.0.1:1"
QUESTION = "Which time zones do dates have?"


@dataclass
class Embedding:
    """The vector of a text says whether it names time zones; the server that it is behind wants a token."""

    requests: list[embedding_pb2.EmbedRequest] = field(default_factory=list)

    async def __call__(self, request: embedding_pb2.EmbedRequest) -> embedding_pb2.EmbedResponse:
        self.requests.append(request)
        vectors = [[0.0, 1.0] if "time zone" in text else [1.0, 0.0] for text in request.texts]
        return embedding_pb2.EmbedResponse(
            embeddings=[embedding_pb2.Embedding(values=vector) for vector in vectors],
            space_id="space",
            dimensions=2,
        )


async def never(request: embedding_pb2.EmbedRequest) -> embedding_pb2.EmbedResponse:
    return await asyncio.Event().wait() and embedding_pb2.EmbedResponse()


async def garbage(request: embedding_pb2.EmbedRequest) -> embedding_pb2.EmbedResponse:
    vector = embedding_pb2.Embedding(values=[float("nan"), 1])
    return embedding_pb2.EmbedResponse(embeddings=[vector], space_id="space", dimensions=2)


@asynccontextmanager
async def skills(
    postgres: PostgresSettings, target: str, timeout_s: float = 5
) -> AsyncIterator[SkillsServiceStub]:
    settings = SkillsSettings(
        postgres=postgres,
        auth=AUTH,
        grpc=GrpcSettings(),
        embedding=ChannelSettings(target=target, timeout_s=timeout_s),
    )
    async with (
        bootstrap(settings) as server,
        open_channel(ChannelSettings(target=f"127.0.0.1:{server.port}")) as channel,
    ):
        yield SkillsServiceStub(channel)


async def ask(stub: Any, question: str = QUESTION, timeout_s: float = TIMEOUT_S) -> pb.ResolveSkillsResponse:
    request = pb.ResolveSkillsRequest(intent="technical", question=question)
    metadata = (("authorization", token()),)
    answer: pb.ResolveSkillsResponse = await stub.ResolveSkills(request, metadata=metadata, timeout=timeout_s)
    return answer


async def test_the_nearest_chunks_come_first_once_they_have_vectors(postgres_settings: PostgresSettings) -> None:
    embedding = Embedding()
    async with (
        served(embedding, auth=AUTH) as (embedder, _),
        skills(postgres_settings, f"127.0.0.1:{embedder.port}") as stub,
        asyncio.timeout(TIMEOUT_S),
    ):
        unasked = await ask(stub, question=" ")
        assert embedding.requests == []
        first = await ask(stub)
        while not (answer := await ask(stub)).by_relevance:
            await asyncio.sleep(0.01)

    assert first == unasked
    assert answer.overlay_chunks[0].chunk_id == "dates-and-time-zones"
    assert answer.overlay_chunks[0] != unasked.overlay_chunks[0]
    assert answer.overlay_chars <= 1200
    [chunks] = [request for request in embedding.requests if len(request.texts) > 1]
    assert chunks.texts[0] == f"{SKILL.chunks[0].title}\n\n{SKILL.chunks[0].content}"
    assert (chunks.space_id, chunks.input_type) == ("space", embedding_pb2.INPUT_TYPE_DOCUMENT)
    questions = [request for request in embedding.requests if request is not chunks]
    assert all(request.input_type == embedding_pb2.INPUT_TYPE_QUERY for request in questions)


@pytest.mark.parametrize(
    ("handle", "code"),
    [
        (None, "embedding_unavailable"),
        (never, "embedding_unavailable"),
        (raising(ResourceExhausted("busy")), "embedding_unavailable"),
        (garbage, "bad_vector"),
    ],
    ids=["down", "silent", "busy", "garbage"],
)
async def test_an_embedding_service_in_trouble_costs_the_order_alone(
    postgres_settings: PostgresSettings, handle: Handle | None, code: str
) -> None:
    async with served(handle or never, auth=AUTH) as (embedder, _):
        target = f"127.0.0.1:{embedder.port}" if handle else NOWHERE
        async with skills(postgres_settings, target, timeout_s=0.2) as stub:
            with capture_logs() as logs:
                answer = await ask(stub)
            assert answer == await ask(stub, question="")

    assert not answer.by_relevance
    degraded: list[Any] = [line for line in logs if line["event"] == "resolve_degraded"]
    assert [line["code"] for line in degraded] == [code]
    assert QUESTION not in str(logs)


async def test_a_call_with_little_time_keeps_some_for_its_answer(postgres_settings: PostgresSettings) -> None:
    async with (
        served(never, auth=AUTH) as (embedder, _),
        skills(postgres_settings, f"127.0.0.1:{embedder.port}") as stub,
    ):
        answer = await ask(stub, timeout_s=2)

    assert answer.overlay_chars > 0
    assert not answer.by_relevance
