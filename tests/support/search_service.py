"""The search service for the tests of its wire: the real one, with an embedding service of the test's own."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

import grpc
import jwt
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import SecretStr

from kbmesh.auth import AuthMode, AuthSettings
from kbmesh.embedding.v1 import embedding_pb2, embedding_pb2_grpc
from kbmesh.errors import NotFound
from kbmesh.postgres import PostgresSettings
from kbmesh.rpc import ChannelSettings, GrpcServer, GrpcSettings, serve
from kbmesh.rpc.status import reason
from kbmesh.search.v1 import search_pb2, search_pb2_grpc
from services.search.bootstrap import bootstrap
from services.search.settings import SearchSettings
from tests.support.search import SPACE

SECRET = "a secret of thirty-two bytes or more"
AUTH = AuthSettings(mode=AuthMode.HS256, secret=SecretStr(SECRET))
SERVICE = "kbmesh.search.v1.SearchService"
HEALTH = health_pb2.HealthCheckResponse
NOWHERE = "127.0.0.1:1"
ANN = uuid4()


def token(sub: UUID, **claims: Any) -> tuple[tuple[str, str], ...]:
    payload = {"sub": str(sub), "aud": "kbmesh", "exp": time.time() + 60} | claims
    return (("authorization", f"Bearer {jwt.encode(payload, SECRET, 'HS256')}"),)


async def health_of(channel: grpc.aio.Channel, service: str = SERVICE, **options: Any) -> int:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    status: int = (await stub.Check(health_pb2.HealthCheckRequest(service=service), **options)).status
    return status


def reason_of(failure: pytest.ExceptionInfo[grpc.aio.AioRpcError]) -> str | None:
    return reason(cast(grpc.Call, failure.value))


@dataclass
class Client:
    channel: grpc.aio.Channel
    server: GrpcServer

    async def search(
        self, query: str = "churn", *, caller: UUID = ANN, roles: list[str] | None = None, **fields: Any
    ) -> search_pb2.KbSearchResponse:
        stub = search_pb2_grpc.SearchServiceStub(self.channel)
        request = search_pb2.KbSearchRequest(query=query, **fields)
        return await stub.KbSearch(request, metadata=token(caller, roles=roles or []), timeout=20)

    async def health(self, service: str = SERVICE) -> int:
        return await health_of(self.channel, service, timeout=5)


@dataclass
class EmbeddingStub(embedding_pb2_grpc.EmbeddingServiceServicer):
    """Answers every text with the vector of the space, for callers with a valid token."""

    vectors: dict[str, list[float]] = field(default_factory=lambda: {SPACE.id: [1, 0, 0, 0]})
    requests: list[embedding_pb2.EmbedRequest] = field(default_factory=list)

    async def Embed(self, request: embedding_pb2.EmbedRequest, context: Any) -> embedding_pb2.EmbedResponse:
        self.requests.append(request)
        if request.space_id not in self.vectors:
            raise NotFound("no such space")
        values = self.vectors[request.space_id]
        return embedding_pb2.EmbedResponse(
            embeddings=[embedding_pb2.Embedding(values=values)],
            space_id=request.space_id,
            dimensions=len(values),
        )


@asynccontextmanager
async def running_search(
    postgres: PostgresSettings, embedding: EmbeddingStub, *, embedding_up: bool = True, **settings: Any
) -> AsyncIterator[Client]:
    """The service and a client of it; `settings` replace single ones."""
    async with AsyncExitStack() as stack:
        target = NOWHERE
        if embedding_up:
            register = partial(embedding_pb2_grpc.add_EmbeddingServiceServicer_to_server, embedding)
            embedder = await stack.enter_async_context(serve(GrpcSettings(), AUTH, register, []))
            target = f"127.0.0.1:{embedder.port}"
        values = {
            "postgres": postgres,
            "auth": AUTH,
            "grpc": GrpcSettings(),
            "embedding": ChannelSettings(target=target),
        } | settings
        server = await stack.enter_async_context(bootstrap(SearchSettings(**values)))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{server.port}"))
        yield Client(channel, server)


@asynccontextmanager
async def socket_proxy(directory: Path, dsn: str) -> AsyncIterator[None]:
    """A second Unix socket to the database of `dsn`, so that it can go away while the database stays."""
    [target] = parse_qs(urlsplit(dsn).query)["host"]
    connections: set[asyncio.Task[None]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_unix_connection(f"{target}/.s.PGSQL.5432")
        directions = [
            asyncio.create_task(copy(reader, upstream_writer)),
            asyncio.create_task(copy(upstream_reader, writer)),
        ]
        connections.update(directions)
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        for end in (writer, upstream_writer):
            end.close()
        await asyncio.gather(*directions, return_exceptions=True)

    path = directory / ".s.PGSQL.5432"
    server = await asyncio.start_unix_server(connect, path)
    try:
        yield
    finally:
        server.close()
        for direction in connections:
            direction.cancel()
        path.unlink(missing_ok=True)  # Python 3.13 has done it
