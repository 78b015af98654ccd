from collections.abc import Sequence
from typing import Final

from kbmesh.events.v1.records_pb2 import RecordUpserted
from kbmesh.messaging import enqueue
from kbmesh.postgres import Pool, transaction
from services.skills.domain.records import SkillRecord

KIND: Final = "skill_chunk"
SOURCE: Final = "/kbmesh/skills"


class PostgresRecordOutbox:
    """Writes records into the outbox, from where the relay publishes them."""

    def __init__(self, pool: Pool, topic: str) -> None:
        self._pool = pool
        self._topic = topic

    async def publish(self, records: Sequence[SkillRecord]) -> None:
        async with transaction(self._pool) as conn:
            for record in records:
                await enqueue(conn, self._topic, f"{KIND}:{record.source_id}", _to_event(record), source=SOURCE)


def _to_event(record: SkillRecord) -> RecordUpserted:
    event = RecordUpserted(
        kind=KIND,
        source_id=record.source_id,
        revision=record.revision,
        content=record.content,
        title=record.title,
    )
    event.metadata.update(record.metadata)
    return event
