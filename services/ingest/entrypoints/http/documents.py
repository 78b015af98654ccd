from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request, Response

from kbmesh.errors import InvalidArgument
from kbmesh.provenance import Category, Tier
from services.ingest.domain.models import DocumentFilter, Status
from services.ingest.entrypoints.http.dependencies import Caller, Uploader, Writer, gateway_of
from services.ingest.entrypoints.http.etags import IfMatch, IfNoneMatch, etag, is_known, versions
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
                        "category": {"type": "string", "enum": list(Category), "examples": ["data_dictionary"]},
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
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=255,
            pattern=r"^[\x20-\x7e]+$",
            description="A name of yours for this upload: repeated within 24 hours, it is answered as before. "
            "With another upload it is refused: 409 `idempotency_key_reused`.",
        ),
    ] = None,
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
        idempotency_key=idempotency_key,
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
    status: Status | None = None,
    category: Category | None = None,
    filename: Annotated[
        str | None, Query(max_length=255, pattern=r"^[^\x00]*$", description="Somewhere in the name, any case.")
    ] = None,
    after: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> DocumentPage:
    """The documents of a knowledge base, or those that match, in order of creation."""
    gateway = gateway_of(request)
    found = await handlers.list_documents(
        gateway.knowledge_bases,
        gateway.documents,
        caller,
        kb_id,
        DocumentFilter(status, category, filename),
        after=after,
        limit=limit,
    )
    return DocumentPage(
        items=[DocumentOut.of(document) for document in found],
        next_after=found[-1].id if len(found) == limit else None,
    )


@router.get(
    "/documents/{document_id}",
    response_model=DocumentOut,
    responses=responses(404) | {304: {"description": "Nothing has changed."}},
)
async def get(
    request: Request, response: Response, caller: Caller, document_id: UUID, if_none_match: IfNoneMatch = None
) -> DocumentOut | Response:
    """A document and its state: pending, processing, embedding, then ready, empty or failed."""
    document = await handlers.get_document(gateway_of(request).documents, caller, document_id)
    tag = etag(document.version)
    if is_known(document.version, if_none_match):
        return Response(status_code=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return DocumentOut.of(document)


@router.delete("/documents/{document_id}", responses=responses(403, 404, 412))
async def delete(request: Request, caller: Writer, document_id: UUID, if_match: IfMatch = None) -> RemovedOut:
    """Deletes a document, in any state, with its file, chunks and vectors.

    The receipt says how many that were, and what was found left when they were looked for.
    """
    gateway = gateway_of(request)
    removed = await handlers.delete_document(
        gateway.knowledge_bases, gateway.documents, gateway.store, caller, document_id, versions(if_match)
    )
    return RemovedOut.of(removed)
