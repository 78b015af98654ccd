import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import structlog
import uvicorn
from starlette.types import ASGIApp

from kbmesh.errors import Misconfigured

log = structlog.get_logger(__name__)

KEEP_ALIVE_S: Final = 30
MAX_CONCURRENT_REQUESTS: Final = 512


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to the process, which stops all of its parts in order."""
        yield


@asynccontextmanager
async def serve_http(app: ASGIApp, host: str, port: int, stop_grace_s: int) -> AsyncIterator[int]:
    """Serves `app` until exit, then lets requests under way finish; yields the port.

    Raises:
        Misconfigured: the address is taken or not this machine's.
    """
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        raise Misconfigured(f"cannot listen on {host}:{port}: {error.strerror}", code="port_taken") from error
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
        timeout_graceful_shutdown=stop_grace_s,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    bound: int = listener.getsockname()[1]
    log.info("http_listening", host=host, port=bound)
    try:
        yield bound
    finally:
        server.should_exit = True
        await serving
        listener.close()
