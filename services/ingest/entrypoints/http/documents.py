from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from kbmesh.errors import InvalidArgument
from kbmesh.provenance import Category, Tier
from services.ingest.entrypoints.http.dependencies import Caller, Uploader, Writer, gateway_of
from services.ingest.entrypoints.http.multipart import MultipartUpload
from services.ingest.entrypoints.http.problems import responses
from services.ingest.entrypoints.http.schemas import DocumentOut, DocumentPage, RemovedOut, UploadOut
from services.ingest.handlers import documents as handlers
from services.ingest.handlers.documents import UploadForm

router = APIRouter(tags=["documents"])

UPLOAD_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "category": {"type": "string", "enum": list(Category)},
                        "source_priority": {"type": "string", "enum": list(Tier)},
                    },
                }
            },
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.post(
    "/knowledge-bases/{kb_id}/documents",
    status_code=202,
    openapi_extra=UPLOAD_BODY,
    responses=responses(400, 403, 404, 408, 409, 413, 415)
    | {200: {"model": UploadOut, "description": "The document holds these very bytes already."}},
)
async def upload(
    request: Request,
    response: Response,
    caller: Uploader,
    kb_id: UUID,
    filename: Annotated[str | None, Query(description="For a raw body; a form carries its own.")] = None,
    category: Annotated[str | None, Query(description="As the form field; `other` by default.")] = None,
    source_priority: Annotated[str | None, Query(description="As the form field; by default the kind's.")] = None,
) -> UploadOut:
    """Uploads a file, as a form or as the raw body; a known name makes a new revision of that document.

    The answer comes once the file is stored. `GET` at `Location` shows how it goes on.
    """
    gateway = gateway_of(request)
    body, form = _source(request, UploadForm(filename or "", category, source_priority))
    document, changed = await handlers.upload_document(
        gateway.knowledge_bases,
        gateway.documents,
        gateway.store,
        gateway.limits,
        caller,
        kb_id,
        body,
        form,
    )
    response.headers["Location"] = f"/documents/{document.id}"
    response.status_code = 202 if changed else 200
    return UploadOut.of(document, changed=changed)


def _source(request: Request, query: UploadForm) -> tuple[AsyncIterator[bytes], Callable[[], UploadForm]]:
    content_type = request.headers.get("content-type", "")
    if not content_type.lower().startswith("multipart/form-data"):
        if not query.filename:
            raise InvalidArgument("say ?filename=... with a raw body", code="filename_missing")
        return _raw(request), lambda: query
    multipart = MultipartUpload(content_type, request.stream())
    return multipart.file(), lambda: UploadForm(
        filename=multipart.filename or query.filename,
        category=multipart.fields.get("category", query.category),
        source_priority=multipart.fields.get("source_priority", query.source_priority),
    )


async def _raw(request: Request) -> AsyncIterator[bytes]:
    async for data in request.stream():
        if data:
            yield data


@router.get("/knowledge-bases/{kb_id}/documents", responses=responses(404))
async def list_all(
    request: Request,
    caller: Caller,
    kb_id: UUID,
    after: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> DocumentPage:
    """The documents of a knowledge base, in order of creation."""
    gateway = gateway_of(request)
    found = await handlers.list_documents(
        gateway.knowledge_bases, gateway.documents, caller, kb_id, after=after, limit=limit
    )
    return DocumentPage(
        items=[DocumentOut.of(document) for document in found],
        next_after=found[-1].id if len(found) == limit else None,
    )


@router.get("/documents/{document_id}", responses=responses(404))
async def get(request: Request, caller: Caller, document_id: UUID) -> DocumentOut:
    """A document and its state: pending, processing, embedding, then ready, empty or failed."""
    return DocumentOut.of(await handlers.get_document(gateway_of(request).documents, caller, document_id))


@router.delete("/documents/{document_id}", responses=responses(403, 404))
async def delete(request: Request, caller: Writer, document_id: UUID) -> RemovedOut:
    """Deletes a document, in any state, with its file, chunks and vectors; says how many that were."""
    gateway = gateway_of(request)
    removed = await handlers.delete_document(
        gateway.knowledge_bases, gateway.documents, gateway.store, caller, document_id
    )
    return RemovedOut.of(removed)
