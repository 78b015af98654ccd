import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import structlog

from kbmesh.postgres import open_pool
from kbmesh.rpc import GrpcServer, serve
from services.embedder.adapters.encode_queue import EncodeQueue
from services.embedder.adapters.postgres import PostgresVectorStore, ensure_space
from services.embedder.adapters.torch import TorchEncoder
from services.embedder.domain.spaces import Space
from services.embedder.entrypoints.grpc import SERVICE, EmbeddingServicer, register
from services.embedder.entrypoints.kafka import consume_chunks
from services.embedder.settings import EmbedderSettings

log = structlog.get_logger(__name__)


@asynccontextmanager
async def bootstrap(settings: EmbedderSettings) -> AsyncIterator[GrpcServer]:
    """The whole service, from its first health check to the last batch in flight.

    Raises:
        Misconfigured: no usable model, a taken address, or another embedding space is active.
        Unavailable: the database does not answer.
    """
    queue = EncodeQueue(slice_size=settings.slice_size, max_waiting_texts=settings.max_waiting_texts)
    load = partial(
        TorchEncoder,
        settings.model_folder,
        name=settings.model,
        device=settings.device,
        precision=settings.precision,
        threads=settings.threads,
    )
    async with AsyncExitStack() as stack:
        servicer = EmbeddingServicer(queue, model=settings.model)
        # Listens before the model is there, so that a health check gets an answer: not serving yet.
        server = await stack.enter_async_context(
            serve(settings.grpc, settings.auth, partial(register, servicer=servicer), [SERVICE])
        )
        pool = await stack.enter_async_context(open_pool(settings.postgres, vectors=True))
        encoder = await stack.enter_async_context(queue.running(load))
        space = Space(settings.model, encoder.dimensions)
        await ensure_space(pool, space)

        stop = asyncio.Event()
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        stack.callback(stop.set)
        tasks.create_task(
            consume_chunks(
                settings.kafka,
                encoder=queue,
                store=PostgresVectorStore(pool, space, status_topic=settings.kafka.topics.status),
                batch_chunks=settings.batch_chunks,
                linger_s=settings.linger_s,
                in_flight=settings.batches_in_flight,
                retry=settings.retry,
                stop=stop,
            )
        )
        await server.set_serving(True)
        stack.push_async_callback(server.set_serving, False)
        log.info("embedder_ready", space=space.id, port=server.port)
        yield server
