from collections.abc import Sequence
from uuid import UUID

from kbmesh.messaging import Topics
from kbmesh.postgres import Connection, Pool, transaction
from services.ingest.adapters.postgres.chunks import insert_chunks
from services.ingest.adapters.postgres.events import enqueue_chunks_ready
from services.ingest.domain.extraction import ChunkDraft
from services.ingest.domain.records import Record, RecordDeletion

_DELETED_SHA256 = bytes(32)


class PostgresRecords:
    def __init__(self, pool: Pool, topics: Topics) -> None:
        self._pool = pool
        self._topics = topics

    async def unchanged(self, record: Record) -> bool:
        async with transaction(self._pool) as conn:
            stored = await conn.fetchrow(
                """SELECT revision, content_sha256, embedded_count < chunk_count AS embedding FROM records
                   WHERE kind = $1 AND source_id = $2 FOR UPDATE""",
                record.kind,
                record.source_id,
            )
            if stored is None:
                return False
            if stored["revision"] >= record.revision:
                return True
            if stored["content_sha256"] != record.content_sha256:
                return False
            # The chunks stand as they are, under the new number.
            key = (record.kind, record.source_id, stored["revision"], record.revision)
            await conn.execute(
                "UPDATE chunks SET revision = $4 WHERE kind = $1 AND source_id = $2 AND revision = $3", *key
            )
            await conn.execute(
                """UPDATE records SET revision = $4, updated_at = now(),
                       live_revision = CASE WHEN live_revision = $3 THEN $4 ELSE live_revision END
                   WHERE kind = $1 AND source_id = $2""",
                *key,
            )
            if stored["embedding"]:
                # What was announced under the old number is outdated by now.
                rows = await conn.fetch(
                    """SELECT id FROM chunks WHERE kind = $1 AND source_id = $2 AND revision = $3
                       ORDER BY ordinal""",
                    record.kind,
                    record.source_id,
                    record.revision,
                )
                await self._announce(conn, record, [row["id"] for row in rows])
            return True

    async def upsert(self, record: Record, drafts: Sequence[ChunkDraft]) -> bool:
        async with transaction(self._pool) as conn:
            row = await conn.fetchrow(
                """INSERT INTO records AS r (kind, source_id, revision, content_sha256, chunk_count, live_revision)
                   VALUES ($1, $2, $3, $4, $5, $3)
                   ON CONFLICT (kind, source_id) DO UPDATE
                   SET revision = $3, content_sha256 = $4, chunk_count = $5, embedded_count = 0,
                       live_revision = coalesce(r.live_revision, $3), deleted_at = NULL, updated_at = now()
                   WHERE r.revision < $3
                   RETURNING live_revision""",
                record.kind,
                record.source_id,
                record.revision,
                record.content_sha256,
                len(drafts),
            )
            if row is None:
                return False
            await conn.execute(
                "DELETE FROM chunks WHERE kind = $1 AND source_id = $2 AND revision <> $3",
                record.kind,
                record.source_id,
                row["live_revision"],
            )
            chunk_ids = await insert_chunks(
                conn,
                kind=record.kind,
                source_id=record.source_id,
                revision=record.revision,
                drafts=drafts,
                tier=record.tier,
                live=row["live_revision"] == record.revision,
                valid_until=record.valid_until,
                metadata={"title": record.title, "attributes": record.attributes},
            )
            await self._announce(conn, record, chunk_ids)
            return True

    async def _announce(self, conn: Connection, record: Record, chunk_ids: Sequence[UUID]) -> None:
        await enqueue_chunks_ready(
            conn,
            self._topics,
            kind=record.kind,
            source_id=record.source_id,
            revision=record.revision,
            chunk_ids=chunk_ids,
        )

    async def delete(self, deletion: RecordDeletion) -> bool:
        async with transaction(self._pool) as conn:
            row = await conn.fetchrow(
                """INSERT INTO records AS r (kind, source_id, revision, content_sha256, deleted_at)
                   VALUES ($1, $2, $3, $4, now())
                   ON CONFLICT (kind, source_id) DO UPDATE
                   SET revision = $3, content_sha256 = $4, chunk_count = 0, embedded_count = 0,
                       live_revision = NULL, deleted_at = now(), updated_at = now()
                   WHERE r.revision < $3
                   RETURNING revision""",
                deletion.kind,
                deletion.source_id,
                deletion.revision,
                _DELETED_SHA256,
            )
            if row is None:
                return False
            await conn.execute(
                "DELETE FROM chunks WHERE kind = $1 AND source_id = $2", deletion.kind, deletion.source_id
            )
            return True
