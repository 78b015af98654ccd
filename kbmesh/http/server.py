import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import structlog
import uvicorn
from pydantic import BaseModel, ConfigDict
from starlette.types import ASGIApp, Receive, Scope, Send

from kbmesh.errors import Misconfigured
from kbmesh.observability import tracing

log = structlog.get_logger(__name__)

KEEP_ALIVE_S: Final = 30
MAX_CONCURRENT_REQUESTS: Final = 512


class HttpSettings(BaseModel):
    """Where an HTTP server listens. Port 0 picks a free one."""

    model_config = ConfigDict(frozen=True)

    host: str = "127.0.0.1"
    port: int = 0
    stop_grace_s: int = 10


class Tracing:
    """A span around each request, in the caller's trace if it names one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        with tracing.serving(headers, f"{scope['method']} {scope['path']}"):
            await self._app(scope, receive, send)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to the process, which stops all of its parts in order."""
        yield


@asynccontextmanager
async def serve_http(app: ASGIApp, settings: HttpSettings) -> AsyncIterator[int]:
    """Serves `app` until exit, then lets requests under way finish; yields the port.

    Raises:
        Misconfigured: the address is taken or not this machine's.
    """
    try:
        listener = socket.create_server((settings.host, settings.port))
    except OSError as error:
        raise Misconfigured(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}", code="port_taken"
        ) from error
    # Connections inherit it. asyncio sets it for its own sockets alone; without it the body of each answer waits
    # for the delayed ACK of its head, 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONCURRENT_REQUESTS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=settings.stop_grace_s,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    bound: int = listener.getsockname()[1]
    log.info("http_listening", host=settings.host, port=bound)
    try:
        yield bound
    finally:
        server.should_exit = True
        await serving
        listener.close()
