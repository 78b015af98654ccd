import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import structlog
from grpc.aio import Server

from kbmesh.auth import Authenticator, require_loopback
from kbmesh.errors import KbmeshError
from kbmesh.http import serve_http
from kbmesh.postgres import open_pool
from kbmesh.rpc import GrpcServer, serve
from services.embedder import handlers
from services.embedder.adapters.encode_queue import EncodeQueue
from services.embedder.adapters.openai import Endpoint, open_endpoint
from services.embedder.adapters.postgres import (
    PostgresBacklog,
    PostgresSpaces,
    PostgresSpaceStore,
    PostgresVectorStore,
    ensure_space,
)
from services.embedder.adapters.torch import TorchEncoder
from services.embedder.domain.encoding import InputType
from services.embedder.entrypoints import grpc as embedding_grpc
from services.embedder.entrypoints import spaces_grpc
from services.embedder.entrypoints.filler import fill_spaces
from services.embedder.entrypoints.http import EmbeddingApi, create_app
from services.embedder.entrypoints.kafka import consume_chunks
from services.embedder.ports import Models, TextEncoder
from services.embedder.settings import EmbedderSettings, ModelSettings

log = structlog.get_logger(__name__)


@asynccontextmanager
async def bootstrap(settings: EmbedderSettings) -> AsyncIterator[GrpcServer]:
    """The whole service, from its first health check to the last batch in flight.

    Raises:
        Misconfigured: no usable model, a taken address, or an embedding space that does not fit the models.
        Unavailable: the database or the endpoint of a model does not answer.
    """
    require_loopback(settings.auth, settings.http.host)
    async with AsyncExitStack() as stack:
        embedding, operating = embedding_grpc.EmbeddingServicer(), spaces_grpc.SpaceServicer()

        def register(server: Server) -> None:
            embedding_grpc.register(server, embedding)
            spaces_grpc.register(server, operating)

        # Both listen before the model is there, so that a health check gets an answer: not serving yet.
        server = await stack.enter_async_context(
            serve(settings.grpc, settings.auth, register, [embedding_grpc.SERVICE, spaces_grpc.SERVICE])
        )
        api = EmbeddingApi(Authenticator(settings.auth), lambda: server.serving)
        await stack.enter_async_context(serve_http(create_app(api), settings.http))
        if settings.model.provider == "off":
            log.warning("embedding_is_off", port=server.port)
            yield server
            return
        pool = await stack.enter_async_context(open_pool(settings.postgres, vectors=True))
        spaces = PostgresSpaces(pool)
        await spaces.read()
        own = settings.model
        models = await _open_models(settings, spaces.active.model if spaces.active else own.name, stack)
        dimensions = {name: model.dimensions for name, model in models.items()}
        await ensure_space(pool, own.name, own.dimensions, dimensions)
        await spaces.read()
        store = PostgresSpaceStore(pool, spaces)
        await handlers.check_model(await spaces.find(), store=store, models=models)
        embedding.open(spaces, models)
        operating.open(store, models)
        api.open(spaces, models)

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
        backlog = PostgresBacklog(pool)
        tasks.create_task(fill_spaces(spaces, models=models, store=store, backlog=backlog, stop=stop))
        watch = tasks.create_task(spaces.watch())
        stack.callback(watch.cancel)
        await server.set_serving(True)
        stack.push_async_callback(server.set_serving, False)
        log.info("embedder_ready", models=list(models), port=server.port)
        yield server


async def _open_models(settings: EmbedderSettings, needed: str, stack: AsyncExitStack) -> Models:
    """Those that can be opened. Raises as they do where the `needed` one cannot."""
    queue = await stack.enter_async_context(
        EncodeQueue(
            slice_size=settings.slice_size,
            slice_tokens=settings.slice_tokens,
            max_waiting_texts=settings.max_waiting_texts,
        ).running()
    )
    models: dict[str, TextEncoder] = {}
    for one in settings.models:
        try:
            models[one.name] = await _open_model(one, settings, queue, stack)
        except KbmeshError as error:
            if one.name == needed:
                raise
            # One that is being tried, or was retired, must not keep the other from serving.
            log.error("model_not_opened", model=one.name, error=error.code, detail=error.detail)
    return models


async def _open_model(
    model: ModelSettings, settings: EmbedderSettings, queue: EncodeQueue, stack: AsyncExitStack
) -> TextEncoder:
    if model.provider == "openai":
        endpoint = _endpoint(model, max_waiting_texts=settings.max_waiting_texts)
        return await stack.enter_async_context(open_endpoint(endpoint))
    return await queue.load(
        partial(
            TorchEncoder,
            model.folder,
            name=model.name,
            device=settings.device,
            precision=settings.precision,
            threads=settings.threads,
        )
    )


def _endpoint(model: ModelSettings, *, max_waiting_texts: int) -> Endpoint:
    return Endpoint(
        url=str(model.url),
        model=model.remote_name or model.name,
        api_key=model.api_key,
        dimensions=model.dimensions if model.send_dimensions else None,
        prompts={InputType.QUERY: model.query_prompt, InputType.DOCUMENT: model.document_prompt},
        batch_texts=model.batch_texts,
        max_chars=model.max_chars,
        timeout_s=model.timeout_s,
        requests_in_flight=model.requests_in_flight,
        max_waiting_texts=max_waiting_texts,
    )
