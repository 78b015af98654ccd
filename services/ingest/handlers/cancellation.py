from uuid import UUID

from kbmesh.auth import Principal
from kbmesh.errors import Conflict
from services.ingest.domain.models import CANCELLED, Document
from services.ingest.handlers.documents import unknown_document
from services.ingest.ports import Documents


async def cancel_document(documents: Documents, principal: Principal, document_id: UUID) -> Document:
    """Ends the processing of a document as `failed` with `cancelled`; what was live before stays so.

    Raises:
        NotFound: no such document for the caller.
        Conflict: it is ready, empty or failed.
    """
    document = await documents.cancel(principal, document_id)
    if document is None:
        raise unknown_document()
    if document.error_code != CANCELLED:
        raise Conflict(f"the document is {document.status} already", code="not_in_progress")
    return document
