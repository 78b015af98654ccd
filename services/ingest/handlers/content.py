from collections.abc import AsyncGenerator

from kbmesh.errors import NotFound
from services.ingest.domain.models import Document
from services.ingest.ports import ObjectStore


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
