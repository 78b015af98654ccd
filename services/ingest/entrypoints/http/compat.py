"""Routes of older clients: other paths to the same handlers."""

from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from services.ingest.entrypoints.http import documents
from services.ingest.entrypoints.http.dependencies import Caller, Uploader, Writer, gateway_of
from services.ingest.entrypoints.http.problems import responses
from services.ingest.entrypoints.http.schemas import DocumentOut, DocumentPage, RemovedOut, UploadOut
from services.ingest.handlers import default_base as handlers

router = APIRouter(tags=["compatibility"])

UNCHANGED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": UploadOut, "description": "The document holds these very bytes already."}
}

router.add_api_route(
    "/knowledge-bases/{kb_id}/chunk",
    documents.upload,
    methods=["POST"],
    status_code=202,
    openapi_extra=documents.UPLOAD_BODY,
    responses=responses(400, 403, 404, 408, 409, 413, 415) | UNCHANGED,
    description="As `POST /knowledge-bases/{kb_id}/documents`.",
)


@router.post(
    "/api/knowledge-base/upload",
    status_code=202,
    openapi_extra=documents.UPLOAD_BODY,
    responses=responses(400, 403, 404, 408, 409, 413, 415) | UNCHANGED,
)
async def upload(
    request: Request,
    response: Response,
    caller: Uploader,
    filename: Annotated[str | None, Query(description="For a raw body; a form carries its own.")] = None,
    category: Annotated[str | None, Query(description="As the form field; `other` by default.")] = None,
    source_priority: Annotated[str | None, Query(description="As the form field; by default the kind's.")] = None,
) -> UploadOut:
    """Uploads into your default knowledge base, which the first upload makes."""
    base = await handlers.default_knowledge_base(gateway_of(request).knowledge_bases, caller)
    return await documents.upload(
        request,
        response,
        caller,
        base.id,
        filename=filename,
        category=category,
        source_priority=source_priority,
    )


@router.get("/api/knowledge-base", responses=responses())
async def list_all(
    request: Request,
    caller: Caller,
    after: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> DocumentPage:
    """The documents of your default knowledge base, in order of creation."""
    gateway = gateway_of(request)
    found = await handlers.list_default_documents(
        gateway.knowledge_bases, gateway.documents, caller, after=after, limit=limit
    )
    return DocumentPage(
        items=[DocumentOut.of(document) for document in found],
        next_after=found[-1].id if len(found) == limit else None,
    )


@router.delete("/api/knowledge-base", responses=responses())
async def clear(request: Request, caller: Writer) -> RemovedOut:
    """Deletes every document of your default knowledge base; the receipt says how much that was."""
    gateway = gateway_of(request)
    removed = await handlers.clear_default_documents(
        gateway.knowledge_bases, gateway.documents, gateway.store, caller
    )
    return RemovedOut.of(removed)
