import tempfile
from pathlib import Path
from uuid import UUID

import structlog

from kbmesh.errors import KbmeshError, NotFound, UnsupportedType
from services.ingest.domain.extraction import ChunkDraft, ExtractionFailed
from services.ingest.domain.models import Revision
from services.ingest.handlers.turns import Turns
from services.ingest.ports import Documents, Extractor, ObjectStore

log = structlog.get_logger(__name__)

OBJECT_MISSING_DETAIL = "The stored file is gone. Upload it again."
INTERNAL_DETAIL = "The file could not be processed. Try again; if it fails again, report the document's id."


async def extract_document(
    documents: Documents,
    store: ObjectStore,
    extractor: Extractor,
    turns: Turns,
    *,
    document_id: UUID,
    revision: int,
    size_bytes: int,
    superseded_storage_key: str,
) -> None:
    """Turns one revision of a document into chunks. Safe to repeat; does nothing for a revision that is not
    the newest. Until its turn comes it stays pending.

    Raises:
        Unavailable: the database or the object store is down, or the process is stopping.
    """
    if superseded_storage_key:
        await store.delete(superseded_storage_key)
    async with turns.turn(size_bytes):
        claimed = await documents.begin(document_id, revision)
        result = None if claimed is None else await _drafts_or_failure(store, extractor, claimed)
    if claimed is None or result is None:
        log.info("revision_skipped", document_id=str(document_id), revision=revision)
    elif isinstance(result, KbmeshError):
        await documents.fail(document_id, revision, result.code, result.detail)
        log.info("extraction_failed", document_id=str(document_id), revision=revision, code=result.code)
    else:
        await documents.save_chunks(claimed, result)
        log.info("document_extracted", document_id=str(document_id), revision=revision, chunks=len(result))


async def _drafts_or_failure(
    store: ObjectStore, extractor: Extractor, claimed: Revision
) -> list[ChunkDraft] | KbmeshError:
    with tempfile.TemporaryDirectory(prefix="kbmesh-extract-") as directory:
        path = Path(directory) / "original"
        try:
            await store.fetch(claimed.storage_key, path)
            return await extractor.extract(path, claimed.content_type, claimed.origin)
        except NotFound:
            return ExtractionFailed(OBJECT_MISSING_DETAIL, code="object_missing")
        except (ExtractionFailed, UnsupportedType) as error:
            return error


async def give_up_document(documents: Documents, *, document_id: UUID, revision: int) -> None:
    """Marks a document whose event has been dead-lettered, so that nobody waits for it."""
    await documents.fail(document_id, revision, "internal", INTERNAL_DETAIL)


async def remove_object(store: ObjectStore, storage_key: str) -> None:
    """Removes the object of a deleted document, should its deletion have been cut short."""
    await store.delete(storage_key)
