from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version

from fastapi import FastAPI

from kbmesh.auth import Authenticator
from kbmesh.http import Tracing
from services.ingest.entrypoints.http import (
    channels,
    compat,
    content,
    context,
    documents,
    events,
    health,
    knowledge_bases,
    lifecycle,
    problems,
    search,
    uploads,
    webhooks,
)
from services.ingest.handlers.documents import UploadLimits
from services.ingest.handlers.watching import Watches
from services.ingest.ports import (
    Channels,
    Documents,
    EmbeddingProvider,
    Endpoints,
    KnowledgeBases,
    ObjectStore,
    Search,
    Webhooks,
)


@dataclass(frozen=True, slots=True)
class Gateway:
    """What the routes work with."""

    authenticator: Authenticator
    knowledge_bases: KnowledgeBases
    channels: Channels
    documents: Documents
    store: ObjectStore
    embedding: EmbeddingProvider
    search: Search | None
    limits: UploadLimits
    writable: bool
    """False: knowledge bases are switched off, and what is there can only be read."""
    watches: Watches
    webhooks: Webhooks
    endpoints: Endpoints
    webhook_key: bytes | None
    webhooks_per_user: int
    ready: Callable[[], Awaitable[dict[str, str]]]
    """What is wrong with the parts of this process, by name; empty when it can do its work."""


def create_app(gateway: Gateway, *, health_only: bool = False) -> FastAPI:
    """The gateway; `health_only` for a process that has no part in it."""
    app = FastAPI(
        title="kbmesh",
        version=version("kbmesh"),
        summary="Knowledge bases and documents",
        separate_input_output_schemas=False,
    )
    app.state.gateway = gateway
    app.include_router(health.router)
    if not health_only:
        app.include_router(knowledge_bases.router)
        app.include_router(uploads.router)
        app.include_router(documents.router)
        app.include_router(content.router)
        app.include_router(lifecycle.router)
        app.include_router(channels.router)
        app.include_router(search.router)
        app.include_router(context.router)
        app.include_router(compat.router)
        app.include_router(events.router)
        app.include_router(webhooks.router)
    problems.install(app)
    app.add_middleware(Tracing)
    return app
