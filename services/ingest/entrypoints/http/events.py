"""The state of documents as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse

from kbmesh.auth import Principal
from services.ingest.domain.models import Document
from services.ingest.entrypoints.http.dependencies import Caller, gateway_of
from services.ingest.entrypoints.http.problems import responses
from services.ingest.entrypoints.http.schemas import DocumentOut
from services.ingest.handlers.documents import get_document
from services.ingest.handlers.knowledge_bases import get_knowledge_base
from services.ingest.handlers.watching import (
    Alive,
    Complete,
    Gone,
    Pages,
    Told,
    Watch,
    documents_of,
    follow,
    one_document,
)

router = APIRouter(tags=["events"])

RETRY_MS: Final = 2000
HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
EXAMPLE: Final = """retry: 2000

id: 5f0c0a6e-2b6b-4b0e-9a51-0d2a2d3f7a11:1:1764520000000000
event: document
data: {"id":"5f0c0a6e-2b6b-4b0e-9a51-0d2a2d3f7a11","status":"embedding","chunk_count":12,"embedded_count":4}

event: complete
data: {}

event: deleted
data: {"id":"5f0c0a6e-2b6b-4b0e-9a51-0d2a2d3f7a11"}

"""
STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "`document`: its state, as `GET /documents/{document_id}` answers it. `complete`: that was "
        "all there is. `deleted`: that document, or the whole target, is not there any more.",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "example": EXAMPLE}},
    }
}


class EventStream(StreamingResponse):
    media_type = "text/event-stream"


async def _watch_knowledge_base(request: Request, caller: Caller, kb_id: UUID) -> AsyncIterator[Watch]:
    await get_knowledge_base(gateway_of(request).knowledge_bases, caller, kb_id)
    with gateway_of(request).watches.open(caller, kb_id) as watch:
        yield watch


async def _watch_document(request: Request, caller: Caller, document_id: UUID) -> AsyncIterator[Watch]:
    await get_document(gateway_of(request).documents, caller, document_id)
    with gateway_of(request).watches.open(caller, document_id) as watch:
        yield watch


@router.get(
    "/knowledge-bases/{kb_id}/events",
    response_class=EventStream,
    responses=responses(404, 429) | STREAM,
)
async def knowledge_base_events(
    request: Request, kb_id: UUID, watch: Annotated[Watch, Depends(_watch_knowledge_base)]
) -> EventStream:
    """The state of every document of a knowledge base, then each change as it happens.

    A stream that is connected again (with or without `Last-Event-ID`) starts with the state of everything, so that
    nothing is missed. It ends with `deleted` when the knowledge base is, without when the token expires.
    """
    gateway = gateway_of(request)
    return _stream(request, watch, documents_of(gateway.knowledge_bases, gateway.documents, kb_id))


@router.get(
    "/documents/{document_id}/events",
    response_class=EventStream,
    responses=responses(404, 429) | STREAM,
)
async def document_events(
    request: Request, document_id: UUID, watch: Annotated[Watch, Depends(_watch_document)]
) -> EventStream:
    """The state of a document, then each change as it happens; as the events of a knowledge base."""
    return _stream(request, watch, one_document(gateway_of(request).documents, document_id))


def _stream(request: Request, watch: Watch, read: Pages) -> EventStream:
    gateway = gateway_of(request)

    async def authenticate() -> Principal:
        return await gateway.authenticator.authenticate(request.headers.get("authorization"))

    async def lines() -> AsyncIterator[str]:
        yield f"retry: {RETRY_MS}\n\n"
        async for told in follow(watch, read, authenticate, gateway.watches.limits):
            yield _event(told)

    return EventStream(lines(), headers=HEADERS)


def _event(told: Told) -> str:
    match told:
        case Alive():
            return ": alive\n\n"
        case Complete():
            return "event: complete\ndata: {}\n\n"
        case Gone(id=gone):
            return f"event: deleted\ndata: {json.dumps({'id': str(gone)})}\n\n"
        case Document():
            at_us = int(told.updated_at.timestamp() * 1_000_000)
            data = DocumentOut.of(told).model_dump_json()
            return f"id: {told.id}:{told.revision}:{at_us}\nevent: document\ndata: {data}\n\n"
