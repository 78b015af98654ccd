from collections.abc import Sequence

from google.protobuf.message import Message

from kbmesh.events.v1.records_pb2 import GenerationSealed, RecordDeleted, RecordUpserted
from kbmesh.messaging import enqueue
from kbmesh.postgres import Pool, transaction
from kbmesh.tiers import tier_to_proto
from services.ingest.adapters.postgres.events import SOURCE
from services.ingest.domain.records import Record, RecordDeletion, Seal


class PostgresRecordOutbox:
    """Port RecordOutbox. Of what is written at the same time, revisions say which is newer."""

    def __init__(self, pool: Pool, topic: str) -> None:
        self._pool = pool
        self._topic = topic

    async def publish(self, changes: Sequence[Record | RecordDeletion | Seal]) -> None:
        async with transaction(self._pool) as conn:
            for change in changes:
                key = f"{change.kind}:{'' if isinstance(change, Seal) else change.source_id}"
                await enqueue(conn, self._topic, key, _to_event(change), source=SOURCE)


def _to_event(change: Record | RecordDeletion | Seal) -> Message:
    if isinstance(change, Seal):
        return GenerationSealed(kind=change.kind, generation=change.generation, record_count=change.record_count)
    if isinstance(change, RecordDeletion):
        return RecordDeleted(kind=change.kind, source_id=change.source_id, revision=change.revision)
    event = RecordUpserted(
        kind=change.kind,
        source_id=change.source_id,
        revision=change.revision,
        content=change.content,
        title=change.title,
        source_priority=tier_to_proto(change.source_priority),
        generation=change.generation,
    )
    event.metadata.update(change.attributes)
    if change.valid_until is not None:
        event.valid_until.FromDatetime(change.valid_until)
    return event
