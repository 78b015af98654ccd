"""What can be done to a document beside uploading and deleting it."""

from uuid import UUID

from fastapi import APIRouter, Request, Response

from services.ingest.entrypoints.http.dependencies import Uploader, Writer, gateway_of
from services.ingest.entrypoints.http.etags import IfMatch, etag, versions
from services.ingest.entrypoints.http.problems import responses
from services.ingest.entrypoints.http.schemas import DocumentOut, ReembeddedOut, ReprocessedOut
from services.ingest.handlers.cancellation import cancel_document
from services.ingest.handlers.reembedding import reembed_document, reembed_knowledge_base
from services.ingest.handlers.reprocessing import reprocess_document, reprocess_knowledge_base

router = APIRouter(tags=["documents"])


@router.post("/documents/{document_id}/reprocess", status_code=202, responses=responses(403, 404, 412))
async def reprocess(
    request: Request, response: Response, caller: Uploader, document_id: UUID, if_match: IfMatch = None
) -> DocumentOut:
    """Extracts the stored file again, as a new revision; search sees the old one until the new one is ready."""
    gateway = gateway_of(request)
    document = await reprocess_document(
        gateway.knowledge_bases, gateway.documents, caller, document_id, versions(if_match)
    )
    response.headers["Location"] = f"/documents/{document.id}"
    response.headers["ETag"] = etag(document.version)
    return DocumentOut.of(document)


@router.post("/knowledge-bases/{kb_id}/reprocess", status_code=202, responses=responses(403, 404))
async def reprocess_all(request: Request, response: Response, caller: Uploader, kb_id: UUID) -> ReprocessedOut:
    """Extracts every document of a knowledge base again, as `/documents/{document_id}/reprocess` does one."""
    gateway = gateway_of(request)
    count = await reprocess_knowledge_base(gateway.knowledge_bases, gateway.documents, caller, kb_id)
    response.headers["Location"] = f"/knowledge-bases/{kb_id}/documents"
    return ReprocessedOut(documents=count)


@router.post("/documents/{document_id}/reembed", status_code=202, responses=responses(403, 404, 409, 412))
async def reembed(
    request: Request, response: Response, caller: Uploader, document_id: UUID, if_match: IfMatch = None
) -> DocumentOut:
    """Computes the vectors of the stored text anew, as a new revision; search sees the old one until it is ready.

    409 `nothing_to_embed`: no text is stored of the newest revision, since it failed, is empty, or is yet to be
    extracted. Reprocessing extracts it.
    """
    gateway = gateway_of(request)
    document = await reembed_document(
        gateway.knowledge_bases, gateway.documents, caller, document_id, versions(if_match)
    )
    response.headers["Location"] = f"/documents/{document.id}"
    response.headers["ETag"] = etag(document.version)
    return DocumentOut.of(document)


@router.post("/knowledge-bases/{kb_id}/reembed", status_code=202, responses=responses(403, 404))
async def reembed_all(request: Request, response: Response, caller: Uploader, kb_id: UUID) -> ReembeddedOut:
    """Computes all vectors of a knowledge base anew, as `/documents/{document_id}/reembed` does for one document.

    Documents of which no text is stored are skipped.
    """
    gateway = gateway_of(request)
    counts = await reembed_knowledge_base(gateway.knowledge_bases, gateway.documents, caller, kb_id)
    response.headers["Location"] = f"/knowledge-bases/{kb_id}/documents"
    return ReembeddedOut.model_validate(counts)


@router.post("/documents/{document_id}/cancel", responses=responses(403, 404, 409))
async def cancel(request: Request, caller: Writer, document_id: UUID) -> DocumentOut:
    """Calls off the processing of a document: it is `failed` with `cancelled`, and search sees what it saw before.

    409 `not_in_progress`: there is nothing to call off. Reprocessing or another upload starts anew.
    """
    gateway = gateway_of(request)
    return DocumentOut.of(await cancel_document(gateway.knowledge_bases, gateway.documents, caller, document_id))
