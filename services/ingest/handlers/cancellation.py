from uuid import UUID

from kbmesh.auth import Principal
from kbmesh.errors import Conflict
from services.ingest.domain.models import CANCELLED, Document
from services.ingest.handlers.documents import editable_document, unknown_document
from services.ingest.ports import Documents, KnowledgeBases


async def cancel_document(
    knowledge_bases: KnowledgeBases, documents: Documents, principal: Principal, document_id: UUID
) -> Document:
    """Ends the processing of a document as `failed` with `cancelled`; what was live before stays so.

    Raises:
        NotFound, PermissionDenied: as editable_document.
        Conflict: it is ready, empty or failed.
    """
    await editable_document(knowledge_bases, documents, principal, document_id)
    document = await documents.cancel(principal, document_id)
    if document is None:
        raise unknown_document()
    if document.error_code != CANCELLED:
        raise Conflict(f"the document is {document.status} already", code="not_in_progress")
    return document
