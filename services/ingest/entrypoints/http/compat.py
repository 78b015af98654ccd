"""Routes of older clients: other paths to the same handlers."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from services.ingest.entrypoints.http import uploads
from services.ingest.entrypoints.http.dependencies import Caller, Uploader, Writer, gateway_of
from services.ingest.entrypoints.http.problems import responses
from services.ingest.entrypoints.http.schemas import DocumentOut, DocumentPage, RemovedOut, UploadOut
from services.ingest.handlers import default_base as handlers
from services.ingest.handlers.documents import UploadForm

router = APIRouter(tags=["compatibility"])

router.add_api_route(
    "/knowledge-bases/{kb_id}/chunk",
    uploads.upload,
    methods=["POST"],
    status_code=202,
    response_model=UploadOut,
    openapi_extra=uploads.UPLOAD_BODY,
    responses=uploads.UPLOAD_ANSWERS,
    description="As `POST /knowledge-bases/{kb_id}/documents`.",
)


@router.post(
    "/api/knowledge-base/upload",
    status_code=202,
    response_model=UploadOut,
    openapi_extra=uploads.UPLOAD_BODY,
    responses=uploads.UPLOAD_ANSWERS,
)
async def upload(
    request: Request,
    response: Response,
    caller: Uploader,
    filename: uploads.Filename = None,
    category: uploads.CategoryName = None,
    source_priority: uploads.SourcePriority = None,
    metadata: uploads.MetadataText = None,
) -> UploadOut | Response:
    """Uploads into your default knowledge base, which the first upload makes."""
    base = await handlers.default_knowledge_base(gateway_of(request).knowledge_bases, caller)
    query = UploadForm(filename or "", category, source_priority, metadata)
    return await uploads.take_in(request, response, caller, base.id, query)


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
