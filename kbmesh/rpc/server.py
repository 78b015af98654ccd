from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from pydantic import BaseModel, ConfigDict

from kbmesh.auth import Authenticator, AuthSettings, require_loopback
from kbmesh.errors import Misconfigured
from kbmesh.rpc.interceptor import CallInterceptor

log = structlog.get_logger(__name__)

MAX_CONNECTION_AGE_MS: Final = 30 * 60 * 1000


class GrpcSettings(BaseModel):
    """Where a gRPC server listens and what it admits. Port 0 picks a free one."""

    model_config = ConfigDict(frozen=True)

    host: str = "127.0.0.1"
    port: int = 0
    max_message_bytes: int = 4 * 1024 * 1024
    max_concurrent_calls: int = 256
    max_deadline_s: float = 30
    stop_grace_s: float = 10


class GrpcServer:
    """A started server. Not serving, as health checks see it, until `set_serving(True)`."""

    def __init__(self, port: int, health_servicer: health.aio.HealthServicer, services: Sequence[str]) -> None:
        self.port = port
        self.serving = False
        self._health = health_servicer
        self._services = services

    async def set_serving(self, serving: bool) -> None:
        """What the standard health service answers, for each service and for the server as a whole ("")."""
        self.serving = serving
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *self._services):
            await self._health.set(name, status)


@asynccontextmanager
async def serve(
    settings: GrpcSettings,
    auth: AuthSettings,
    register: Callable[[grpc.aio.Server], None],
    services: Sequence[str],
) -> AsyncIterator[GrpcServer]:
    """Runs a server with health, reflection, authentication and limits; drains calls on exit.

    Args:
        register: adds the servicers.
        services: full names of the services that `register` adds.

    Raises:
        Misconfigured: the address is taken, or auth is off on an address beyond loopback.
    """
    require_loopback(auth, settings.host)
    server = grpc.aio.server(
        interceptors=[CallInterceptor(Authenticator(auth), settings.max_deadline_s)],
        maximum_concurrent_rpcs=settings.max_concurrent_calls,
        options=[
            ("grpc.max_receive_message_length", settings.max_message_bytes),
            ("grpc.max_send_message_length", settings.max_message_bytes),
            ("grpc.max_connection_age_ms", MAX_CONNECTION_AGE_MS),
            ("grpc.max_connection_age_grace_ms", int(settings.stop_grace_s * 1000)),
            # Two processes on one port would each get some of the calls, silently.
            ("grpc.so_reuseport", 0),
        ],
    )
    register(server)
    health_servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    reflection.enable_server_reflection((*services, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        port = server.add_insecure_port(f"{settings.host}:{settings.port}")
    except RuntimeError as error:
        raise Misconfigured(f"cannot listen on {settings.host}:{settings.port}", code="port_taken") from error
    handle = GrpcServer(port, health_servicer, services)
    await handle.set_serving(False)
    await server.start()
    log.info("grpc_listening", host=settings.host, port=port, services=services)
    try:
        yield handle
    finally:
        await handle.set_serving(False)
        await server.stop(settings.stop_grace_s)
