import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

import grpc
import structlog

from kbmesh.errors import Unavailable
from kbmesh.postgres import Pool, connection, open_pool
from kbmesh.rpc import GrpcServer, open_channel, serve
from services.search.adapters.cache import CachedQueryEmbedder
from services.search.adapters.embedding import GrpcQueryEmbedder
from services.search.adapters.postgres import SERVER_SETTINGS, PostgresPassages
from services.search.adapters.records import PostgresRecords
from services.search.adapters.skills import GrpcSkills
from services.search.entrypoints.grpc import SERVICE, SearchServicer, register
from services.search.ports import QueryEmbedder
from services.search.settings import SearchSettings

log = structlog.get_logger(__name__)

HEALTH_EVERY_S: Final = 5.0
HEALTH_TIMEOUT_S: Final = 5.0


@asynccontextmanager
async def bootstrap(settings: SearchSettings) -> AsyncIterator[GrpcServer]:
    """The running service; on exit calls in progress are drained, then everything is closed.

    Raises:
        Misconfigured: the address is taken, or auth is off beyond loopback.
        Unavailable: the database does not answer.
    """
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(
            open_pool(settings.postgres, vectors=True, server_settings=_server_settings(settings))
        )
        channel = await stack.enter_async_context(open_channel(settings.embedding))
        servicer = SearchServicer(
            PostgresPassages(pool),
            _embedder(channel, settings),
            records=PostgresRecords(pool),
            skills=await _open_skills(settings, stack),
            max_deadline_s=settings.grpc.max_deadline_s,
        )
        server = await stack.enter_async_context(
            serve(settings.grpc, settings.auth, partial(register, servicer=servicer), [SERVICE])
        )
        await stack.enter_async_context(_watched(pool, server))
        yield server


async def _open_skills(settings: SearchSettings, stack: AsyncExitStack) -> GrpcSkills | None:
    if settings.skills is None:
        return None
    channel = await stack.enter_async_context(open_channel(settings.skills))
    return GrpcSkills(channel, timeout_s=settings.skills.timeout_s)


def _server_settings(settings: SearchSettings) -> dict[str, str]:
    """A call that is over has its statements cancelled; the limit is for when that does not reach the database."""
    return {**SERVER_SETTINGS, "statement_timeout": f"{settings.grpc.max_deadline_s * 1000:.0f}"}


def _embedder(channel: grpc.aio.Channel, settings: SearchSettings) -> QueryEmbedder:
    timeout_s = settings.embedding.timeout_s
    embedder = GrpcQueryEmbedder(channel, timeout_s=timeout_s)
    if not settings.query_cache_entries:
        return embedder
    return CachedQueryEmbedder(embedder, entries=settings.query_cache_entries, timeout_s=timeout_s)


@asynccontextmanager
async def _watched(pool: Pool, server: GrpcServer) -> AsyncIterator[None]:
    """Serving, as health checks see it, while the database answers."""
    await server.set_serving(await _answers(pool))
    watch = asyncio.create_task(_watch(pool, server))
    try:
        yield
    finally:
        watch.cancel()
        await asyncio.wait([watch])


async def _watch(pool: Pool, server: GrpcServer) -> None:
    while True:
        await asyncio.sleep(HEALTH_EVERY_S)
        await server.set_serving(await _answers(pool))


async def _answers(pool: Pool) -> bool:
    try:
        async with connection(pool, timeout_s=HEALTH_TIMEOUT_S) as conn:
            await conn.execute("SELECT", timeout=HEALTH_TIMEOUT_S)
    except Unavailable as error:
        log.warning("database_unavailable", detail=error.detail)
        return False
    return True
