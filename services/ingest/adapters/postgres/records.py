from collections.abc import Sequence
from uuid import UUID

from kbmesh.messaging import Topics
from kbmesh.postgres import Connection, Pool, transaction
from services.ingest.adapters.postgres.chunks import insert_chunks
from services.ingest.adapters.postgres.events import enqueue_chunks_ready
from services.ingest.adapters.postgres.generations import (
    complete_generation,
    enter_generation,
    seal_generation,
)
from services.ingest.domain.extraction import ChunkDraft
from services.ingest.domain.records import Record, RecordDeletion, Seal

_DELETED_SHA256 = bytes(32)


class PostgresRecords:
    def __init__(self, pool: Pool, topics: Topics) -> None:
        self._pool = pool
        self._topics = topics

    async def unchanged(self, record: Record) -> bool:
        async with transaction(self._pool) as conn:
            if await enter_generation(conn, record.kind, record.generation) is None:
                return True
            stored = await conn.fetchrow(
                """SELECT revision, content_sha256, embedded_count < chunk_count AS embedding,
                       deleted_at IS NOT NULL AND generation < $3 AS back FROM records
                   WHERE kind = $1 AND source_id = $2 FOR UPDATE""",
                record.kind,
                record.source_id,
                record.generation,
            )
            if stored is None:
                return False
            # A later generation may bring back what one did not have, as it was.
            if stored["revision"] >= record.revision + stored["back"]:
                await _note_generation(conn, record)
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
            await _note_generation(conn, record)
            return True

    async def upsert(self, record: Record, drafts: Sequence[ChunkDraft]) -> bool:
        async with transaction(self._pool) as conn:
            live = await enter_generation(conn, record.kind, record.generation)
            if live is None:
                return False
            row = await conn.fetchrow(
                """INSERT INTO records AS r (kind, source_id, revision, content_sha256, chunk_count, generation,
                                             live_revision)
                   VALUES ($1, $2, $3::bigint, $4, $5, $6::bigint, CASE WHEN $6::bigint <= $7 THEN $3::bigint END)
                   ON CONFLICT (kind, source_id) DO UPDATE
                   SET revision = $3, content_sha256 = $4, chunk_count = $5, embedded_count = 0,
                       generation = greatest(r.generation, $6),
                       live_revision = coalesce(r.live_revision,
                                                CASE WHEN greatest(r.generation, $6) <= $7 THEN $3::bigint END),
                       deleted_at = NULL, updated_at = now()
                   WHERE r.revision < $3 OR (r.revision = $3 AND r.deleted_at IS NOT NULL AND r.generation < $6)
                   RETURNING live_revision""",
                record.kind,
                record.source_id,
                record.revision,
                record.content_sha256,
                len(drafts),
                record.generation,
                live,
            )
            if row is None:
                await _note_generation(conn, record)
                return False
            await conn.execute(
                "DELETE FROM chunks WHERE kind = $1 AND source_id = $2 AND revision IS DISTINCT FROM $3",
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
            if record.generation:
                await complete_generation(conn, record.kind)
            return True

    async def seal(self, seal: Seal) -> bool:
        async with transaction(self._pool) as conn:
            return await seal_generation(conn, seal.kind, seal.generation, seal.record_count)

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
            await enter_generation(conn, deletion.kind, 0)
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
            # It may have been the last that had no vectors.
            await complete_generation(conn, deletion.kind)
            return True


async def _note_generation(conn: Connection, record: Record) -> None:
    """What is stored of a record is the newest, and so its part in this generation."""
    if record.generation:
        await conn.execute(
            "UPDATE records SET generation = $3 WHERE kind = $1 AND source_id = $2 AND generation < $3",
            record.kind,
            record.source_id,
            record.generation,
        )
        await complete_generation(conn, record.kind)
