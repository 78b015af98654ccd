import structlog

from kbmesh.errors import Poison
from kbmesh.provenance import DOCUMENT_CHUNK, KINDS
from services.ingest.domain.models import Record
from services.ingest.ports import Chunker, Records

log = structlog.get_logger(__name__)


async def upsert_record(records: Records, chunker: Chunker, record: Record) -> None:
    """Stores a row of another kind and asks for its vectors; nothing happens when it is not newer, or the same.

    Raises:
        Poison: the kind is unknown, or reserved for uploaded documents; or there is no content.
        Unavailable: the database is down.
    """
    _check_kind(record.kind)
    if not record.source_id or not record.content.strip():
        raise Poison("a record needs a source_id and content", code="bad_record")
    if await records.unchanged(record):
        return
    applied = await records.upsert(record, await chunker.chunk_text(record.content))
    log.info("record_upserted", kind=record.kind, source_id=record.source_id, applied=applied)


async def delete_record(records: Records, *, kind: str, source_id: str, revision: int) -> None:
    """Raises Poison or Unavailable, as `upsert_record`."""
    _check_kind(kind)
    applied = await records.delete(kind, source_id, revision)
    log.info("record_deleted", kind=kind, source_id=source_id, applied=applied)


def _check_kind(kind: str) -> None:
    if kind not in KINDS or kind == DOCUMENT_CHUNK:
        raise Poison(f"records cannot be of kind {kind[:64]!r}", code="unknown_kind")
