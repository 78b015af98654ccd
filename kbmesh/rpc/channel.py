from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import grpc
from pydantic import BaseModel, ConfigDict


class ChannelSettings(BaseModel):
    """A server to call: `target` is host:port; every call made over it should carry `timeout_s`."""

    model_config = ConfigDict(frozen=True)

    target: str
    timeout_s: float = 5
    tls: bool = False
    max_message_bytes: int = 4 * 1024 * 1024


@asynccontextmanager
async def open_channel(settings: ChannelSettings) -> AsyncIterator[grpc.aio.Channel]:
    """A channel that reconnects by itself; it does not fail when the server is not up yet."""
    options = _options(settings)
    channel = (
        grpc.aio.secure_channel(settings.target, grpc.ssl_channel_credentials(), options=options)
        if settings.tls
        else grpc.aio.insecure_channel(settings.target, options=options)
    )
    async with channel:
        yield channel


@contextmanager
def open_blocking_channel(settings: ChannelSettings) -> Iterator[grpc.Channel]:
    """As open_channel, for a program without an event loop."""
    options = _options(settings)
    channel = (
        grpc.secure_channel(settings.target, grpc.ssl_channel_credentials(), options=options)
        if settings.tls
        else grpc.insecure_channel(settings.target, options=options)
    )
    with channel:
        yield channel


def _options(settings: ChannelSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # A proxy of the environment is for the way out; these are services of one's own.
        ("grpc.enable_http_proxy", 0),
    ]
