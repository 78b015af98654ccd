from collections.abc import AsyncGenerator, Sequence
from uuid import UUID

from kbmesh.auth import Principal
from kbmesh.errors import NotFound
from services.ingest.domain.models import Chunk, Document
from services.ingest.handlers.documents import get_document
from services.ingest.ports import Documents, ObjectStore


async def open_original(store: ObjectStore, document: Document) -> tuple[bytes, AsyncGenerator[bytes, None]]:
    """The first piece of the file of the newest revision, and the stream of the rest, for the caller to close.

    Raises:
        NotFound: the file is gone, for the document was deleted or replaced in this moment.
        Unavailable: the object store is down.
    """
    pieces = store.read(document.storage_key)
    try:
        return await anext(pieces), pieces
    except (NotFound, StopAsyncIteration):
        raise NotFound("the stored file is gone", code="object_missing") from None


async def list_chunks(
    documents: Documents, principal: Principal, document_id: UUID, *, after: int | None, limit: int
) -> Sequence[Chunk]:
    """Raises NotFound: no such document for the caller."""
    await get_document(documents, principal, document_id)
    return await documents.chunks(principal, document_id, after=after, limit=limit)
