import structlog

from services.ingest.domain.records import Record, RecordDeletion, Seal
from services.ingest.ports import Chunker, Records

log = structlog.get_logger(__name__)


async def upsert_record(records: Records, chunker: Chunker, record: Record) -> None:
    """Stores a row of another kind and asks for its vectors; nothing happens when it is not newer, or the same.

    Raises Unavailable: the database is down.
    """
    if await records.unchanged(record):
        return
    applied = await records.upsert(record, await chunker.chunk_text(record.content))
    log.info("record_upserted", kind=record.kind, source_id=record.source_id, applied=applied)


async def delete_record(records: Records, deletion: RecordDeletion) -> None:
    """Raises Unavailable: the database is down."""
    applied = await records.delete(deletion)
    log.info("record_deleted", kind=deletion.kind, source_id=deletion.source_id, applied=applied)


async def seal_generation(records: Records, seal: Seal) -> None:
    """Raises Unavailable: the database is down."""
    live = await records.seal(seal)
    log.info("generation_sealed", kind=seal.kind, generation=seal.generation, count=seal.record_count, live=live)
