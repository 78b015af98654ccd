"""A small gRPC server of this platform's kind, and a client of it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc
import pytest

from kbmesh.auth import AuthMode, AuthSettings
from kbmesh.embedding.v1 import embedding_pb2 as pb
from kbmesh.embedding.v1 import embedding_pb2_grpc as pb_grpc
from kbmesh.rpc import ChannelSettings, GrpcServer, GrpcSettings, open_channel, serve
from kbmesh.rpc.status import reason

SERVICE = "kbmesh.embedding.v1.EmbeddingService"
TIMEOUT_S = 10
OFF = AuthSettings(mode=AuthMode.OFF)

Handle = Callable[[pb.EmbedRequest], Awaitable[pb.EmbedResponse]]


class Servicer(pb_grpc.EmbeddingServiceServicer):
    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def Embed(self, request: pb.EmbedRequest, context: Any) -> pb.EmbedResponse:
        return await self._handle(request)


def registering(handle: Handle) -> Callable[[grpc.aio.Server], None]:
    return lambda server: pb_grpc.add_EmbeddingServiceServicer_to_server(Servicer(handle), server)


@asynccontextmanager
async def served(
    handle: Handle, *, auth: AuthSettings = OFF, **settings: Any
) -> AsyncIterator[tuple[GrpcServer, grpc.aio.Channel]]:
    """A server that handles `Embed` so, and a channel to it."""
    async with (
        serve(GrpcSettings(**settings), auth, registering(handle), [SERVICE]) as server,
        open_channel(ChannelSettings(target=f"127.0.0.1:{server.port}", max_message_bytes=8 * 1024**2)) as channel,
    ):
        yield server, channel


async def embed(
    channel: grpc.aio.Channel,
    *,
    texts: list[str] | None = None,
    metadata: tuple[tuple[str, str], ...] = (),
    timeout_s: float | None = TIMEOUT_S,
) -> pb.EmbedResponse:
    stub = pb_grpc.EmbeddingServiceStub(channel)
    return await stub.Embed(pb.EmbedRequest(texts=texts or []), timeout=timeout_s, metadata=metadata)


async def failure(call: Awaitable[object]) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


def reason_of(error: grpc.aio.AioRpcError) -> str | None:
    return reason(cast(grpc.Call, error))


async def answer(request: pb.EmbedRequest) -> pb.EmbedResponse:
    return pb.EmbedResponse(model="m")


def raising(error: Exception) -> Handle:
    async def handle(request: pb.EmbedRequest) -> pb.EmbedResponse:
        raise error

    return handle


async def raw_call(channel: grpc.aio.Channel, method: str, request: bytes) -> bytes:
    """Calls any method with any bytes."""
    call: Any = channel.unary_unary(f"/{SERVICE}/{method}", lambda raw: raw, lambda raw: raw)
    return bytes(await call(request, timeout=TIMEOUT_S))
