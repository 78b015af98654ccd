import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import structlog

from kbmesh.messaging import Topics
from kbmesh.postgres import open_pool
from kbmesh.rpc import GrpcServer, open_channel, serve
from services.skills import content, handlers
from services.skills.adapters.embedding import GrpcEmbedder
from services.skills.adapters.outbox import PostgresRecordOutbox
from services.skills.domain.registry import CURATED
from services.skills.entrypoints import grpc
from services.skills.settings import SkillsSettings

log = structlog.get_logger(__name__)


@asynccontextmanager
async def bootstrap(settings: SkillsSettings) -> AsyncIterator[GrpcServer]:
    """The running service: its skills are published and its server answers.

    Raises:
        Unavailable: the database does not answer.
        Misconfigured: the port is taken, or auth is off beyond loopback.
    """
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(open_pool(settings.postgres))
        outbox = PostgresRecordOutbox(pool, Topics(settings.topic_prefix).records)
        nearness = None
        if settings.embedding is not None:
            channel = await stack.enter_async_context(open_channel(settings.embedding))
            nearness = handlers.Nearness(
                CURATED.chunks(), GrpcEmbedder(channel), timeout_s=settings.embedding.timeout_s
            )
            stack.push_async_callback(nearness.close)
        servicer = grpc.SkillsServicer(CURATED, nearness, max_deadline_s=settings.grpc.max_deadline_s)
        register = partial(grpc.register, servicer=servicer)
        server = await stack.enter_async_context(serve(settings.grpc, settings.auth, register, [grpc.SERVICE]))
        revision = time.time_ns() // 1_000_000
        published = await handlers.publish_skills(catalog=CURATED, outbox=outbox, revision=revision)
        log.info("skills_published", modules=content.__all__, chunks=published, revision=revision)
        await server.set_serving(True)
        yield server
