from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from kbmesh.provenance import Category
from services.ingest.domain.metadata import parse_metadata
from services.ingest.domain.models import DocumentFilter, Status
from services.ingest.entrypoints.http.dependencies import Caller, Writer, gateway_of
from services.ingest.entrypoints.http.etags import IfMatch, IfNoneMatch, etag, is_known, versions
from services.ingest.entrypoints.http.problems import responses
from services.ingest.entrypoints.http.schemas import DocumentOut, DocumentPage, RemovedOut
from services.ingest.handlers import documents as handlers

router = APIRouter(tags=["documents"])


@router.get("/knowledge-bases/{kb_id}/documents", responses=responses(400, 404))
async def list_all(
    request: Request,
    caller: Caller,
    kb_id: UUID,
    status: Status | None = None,
    category: Category | None = None,
    filename: Annotated[
        str | None, Query(max_length=255, pattern=r"^[^\x00]*$", description="Somewhere in the name, any case.")
    ] = None,
    metadata: Annotated[
        str | None, Query(description="A JSON object: documents that have these values, beside others.")
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
        DocumentFilter(status, category, filename, parse_metadata(metadata)),
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
