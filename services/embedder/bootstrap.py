import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import structlog

from kbmesh.postgres import open_pool
from kbmesh.rpc import GrpcServer, serve
from services.embedder.adapters.encode_queue import EncodeQueue
from services.embedder.adapters.postgres import PostgresVectorStore
from services.embedder.adapters.spaces import PostgresSpaces, ensure_space
from services.embedder.adapters.torch import TorchEncoder
from services.embedder.entrypoints.grpc import SERVICE, EmbeddingServicer, register
from services.embedder.entrypoints.kafka import consume_chunks
from services.embedder.ports import Models, TextEncoder
from services.embedder.settings import EmbedderSettings

log = structlog.get_logger(__name__)


@asynccontextmanager
async def bootstrap(settings: EmbedderSettings) -> AsyncIterator[GrpcServer]:
    """The whole service, from its first health check to the last batch in flight.

    Raises:
        Misconfigured: no usable model, a taken address, or an embedding space that does not fit the models.
        Unavailable: the database does not answer.
    """
    async with AsyncExitStack() as stack:
        servicer = EmbeddingServicer()
        # Listens before the model is there, so that a health check gets an answer: not serving yet.
        server = await stack.enter_async_context(
            serve(settings.grpc, settings.auth, partial(register, servicer=servicer), [SERVICE])
        )
        if settings.model.provider == "off":
            log.warning("embedding_is_off", port=server.port)
            yield server
            return
        pool = await stack.enter_async_context(open_pool(settings.postgres, vectors=True))
        models = await _open_models(settings, stack)
        own = settings.model
        dimensions = {name: model.dimensions for name, model in models.items()}
        await ensure_space(pool, own.name, own.dimensions, dimensions)
        spaces = PostgresSpaces(pool)
        servicer.open(spaces, models)

        stop = asyncio.Event()
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        stack.callback(stop.set)
        tasks.create_task(
            consume_chunks(
                settings.kafka,
                spaces=spaces,
                models=models,
                store=PostgresVectorStore(pool, status_topic=settings.kafka.topics.status),
                batch_chunks=settings.batch_chunks,
                linger_s=settings.linger_s,
                in_flight=settings.batches_in_flight,
                retry=settings.retry,
                stop=stop,
            )
        )
        await server.set_serving(True)
        stack.push_async_callback(server.set_serving, False)
        log.info("embedder_ready", models=list(models), port=server.port)
        yield server


async def _open_models(settings: EmbedderSettings, stack: AsyncExitStack) -> Models:
    queue = await stack.enter_async_context(
        EncodeQueue(
            slice_size=settings.slice_size,
            slice_tokens=settings.slice_tokens,
            max_waiting_texts=settings.max_waiting_texts,
        ).running()
    )
    models: dict[str, TextEncoder] = {}
    for one in settings.models:
        models[one.name] = await queue.load(
            partial(
                TorchEncoder,
                one.folder,
                device=settings.device,
                precision=settings.precision,
                threads=settings.threads,
            )
        )
    return models
