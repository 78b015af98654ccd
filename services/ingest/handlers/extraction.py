import tempfile
from pathlib import Path
from uuid import UUID

import structlog

from kbmesh.errors import KbmeshError, NotFound, UnsupportedType
from services.ingest.domain.extraction import ExtractionFailed
from services.ingest.ports import Documents, Extractor, ObjectStore

log = structlog.get_logger(__name__)

OBJECT_MISSING_DETAIL = "The stored file is gone. Upload it again."
INTERNAL_DETAIL = "The file could not be processed. Try again; if it fails again, report the document's id."


async def extract_document(
    documents: Documents,
    store: ObjectStore,
    extractor: Extractor,
    *,
    document_id: UUID,
    revision: int,
    superseded_storage_key: str,
) -> None:
    """Turns one revision of a document into chunks. Safe to repeat; does nothing for a revision that is not
    the newest.

    Raises:
        Unavailable: the database or the object store is down.
    """
    if superseded_storage_key:
        await store.delete(superseded_storage_key)
    claimed = await documents.begin(document_id, revision)
    if claimed is None:
        log.info("revision_skipped", document_id=str(document_id), revision=revision)
        return
    with tempfile.TemporaryDirectory(prefix="kbmesh-extract-") as directory:
        path = Path(directory) / "original"
        try:
            await store.fetch(claimed.storage_key, path)
            drafts = await extractor.extract(path, claimed.content_type, claimed.origin)
        except NotFound:
            failure: KbmeshError = ExtractionFailed(OBJECT_MISSING_DETAIL, code="object_missing")
        except (ExtractionFailed, UnsupportedType) as error:
            failure = error
        else:
            await documents.save_chunks(claimed, drafts)
            log.info("document_extracted", document_id=str(document_id), revision=revision, chunks=len(drafts))
            return
    await documents.fail(document_id, revision, failure.code, failure.detail)
    log.info("extraction_failed", document_id=str(document_id), revision=revision, code=failure.code)


async def give_up_document(documents: Documents, *, document_id: UUID, revision: int) -> None:
    """Marks a document whose event has been dead-lettered, so that nobody waits for it."""
    await documents.fail(document_id, revision, "internal", INTERNAL_DETAIL)


async def remove_object(store: ObjectStore, storage_key: str) -> None:
    """Removes the object of a deleted document, should its deletion have been cut short."""
    await store.delete(storage_key)
