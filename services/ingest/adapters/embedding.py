import asyncio
import time
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kbmesh.embedding.v1 import embedding_pb2
from kbmesh.errors import Unavailable
from kbmesh.postgres import Pool, connection

SERVICE: Final = embedding_pb2.DESCRIPTOR.services_by_name["EmbeddingService"].full_name
REMEMBERED_S: Final = 3.0


class EmbeddingHealth:
    """Port EmbeddingProvider: an active embedding space and, where there is a channel to ask, a healthy server."""

    def __init__(self, pool: Pool, channel: grpc.aio.Channel | None, *, timeout_s: float) -> None:
        self._pool = pool
        self._stub: Any = None if channel is None else health_pb2_grpc.HealthStub(channel)
        self._timeout_s = timeout_s
        self._asking = asyncio.Lock()
        self._asked_at = -REMEMBERED_S
        self._serving = False

    async def require(self) -> None:
        async with connection(self._pool) as conn:
            space = await conn.fetchval("SELECT id FROM embedding_spaces WHERE status = 'active'")
        if space is None:
            raise _unavailable("no embedding model is set up yet")
        if self._stub is not None and not await self._is_serving():
            raise _unavailable("the embedding service does not answer or is not ready")

    async def _is_serving(self) -> bool:
        async with self._asking:
            if time.monotonic() - self._asked_at >= REMEMBERED_S:
                self._serving = await self._ask()
                self._asked_at = time.monotonic()
            return self._serving

    async def _ask(self) -> bool:
        try:
            answer = await self._stub.Check(
                health_pb2.HealthCheckRequest(service=SERVICE), timeout=self._timeout_s
            )
        except grpc.aio.AioRpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def _unavailable(why: str) -> Unavailable:
    return Unavailable(
        f"{why}, so nothing new can be taken in; reading goes on", code="knowledge_base_unavailable"
    )
