import json
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from kbmesh.auth import Principal
from kbmesh.errors import Conflict
from kbmesh.messaging import Topics
from kbmesh.postgres import Pool, connection, fetch_one, transaction
from kbmesh.postgres.access import identity
from services.ingest.adapters.postgres.cancellation import cancel_revision
from services.ingest.adapters.postgres.chunks import select_chunks, store_chunks
from services.ingest.adapters.postgres.events import enqueue_status
from services.ingest.adapters.postgres.reembedding import renew_vectors, renew_vectors_batch
from services.ingest.adapters.postgres.registration import register_upload
from services.ingest.adapters.postgres.removal import look_again, remove_documents
from services.ingest.adapters.postgres.reprocessing import renew, renew_batch
from services.ingest.adapters.postgres.rows import SELECT_VISIBLE, lock_visible, to_document, to_revision
from services.ingest.domain.extraction import ChunkDraft
from services.ingest.domain.models import (
    IN_PROGRESS,
    Chunk,
    Document,
    DocumentFilter,
    Quota,
    Removed,
    Revision,
    Status,
    StoredUpload,
)


class PostgresDocuments:
    def __init__(self, pool: Pool, topics: Topics, quota: Quota = Quota()) -> None:  # noqa: B008 - frozen
        self._pool = pool
        self._topics = topics
        self._quota = quota

    async def register(self, principal: Principal, upload: StoredUpload) -> tuple[Document, bool] | None:
        async with transaction(self._pool) as conn:
            return await register_upload(conn, self._topics, self._quota, principal, upload)

    async def visible(
        self, principal: Principal, kb_id: UUID, wanted: DocumentFilter, *, after: UUID | None, limit: int
    ) -> list[Document]:
        async with connection(self._pool) as conn:
            rows = await conn.fetch(
                f"""{SELECT_VISIBLE} AND d.kb_id = $3
                      AND ($4::uuid IS NULL OR (d.created_at, d.id) >
                           (SELECT last.created_at, last.id FROM documents last WHERE last.id = $4))
                      AND ($6::text IS NULL OR d.status = $6)
                      AND ($7::text IS NULL OR d.category = $7)
                      AND ($8::text IS NULL OR strpos(lower(d.filename), lower($8)) > 0)
                      AND d.metadata @> $9
                    ORDER BY d.created_at, d.id LIMIT $5""",
                *identity(principal),
                kb_id,
                after,
                limit,
                wanted.status,
                wanted.category,
                wanted.filename,
                json.dumps(wanted.metadata),
            )
        return [to_document(row) for row in rows]

    async def states(
        self,
        principal: Principal,
        kb_id: UUID,
        *,
        only: Sequence[UUID] | None,
        after: tuple[datetime, UUID] | None,
        limit: int,
    ) -> list[Document]:
        async with connection(self._pool) as conn:
            rows = await conn.fetch(
                f"""{SELECT_VISIBLE} AND d.kb_id = $3
                      AND ($4::uuid[] IS NULL OR d.id = ANY($4))
                      AND ($5::timestamptz IS NULL OR (d.created_at, d.id) > ($5, $6::uuid))
                    ORDER BY d.created_at, d.id LIMIT $7""",
                *identity(principal),
                kb_id,
                only,
                *(after or (None, None)),
                limit,
            )
        return [to_document(row) for row in rows]

    async def find(self, principal: Principal, document_id: UUID) -> Document | None:
        async with connection(self._pool) as conn:
            row = await conn.fetchrow(f"{SELECT_VISIBLE} AND d.id = $3", *identity(principal), document_id)
        return None if row is None else to_document(row)

    async def chunks(
        self, principal: Principal, document_id: UUID, *, after: int | None, limit: int
    ) -> list[Chunk]:
        async with connection(self._pool) as conn:
            return await select_chunks(conn, principal, document_id, after=after, limit=limit)

    async def delete(
        self, principal: Principal, document_id: UUID, seen: Collection[str] | None = None
    ) -> Removed | None:
        async with transaction(self._pool) as conn:
            row = await lock_visible(conn, principal, document_id, seen)
            if row is None:
                return None
            removal = await remove_documents(conn, self._topics, [row])
        return await look_again(self._pool, removal)

    async def reprocess(
        self, principal: Principal, document_id: UUID, seen: Collection[str] | None = None
    ) -> Document | None:
        async with transaction(self._pool) as conn:
            row = await lock_visible(conn, principal, document_id, seen)
            return None if row is None else to_document(await renew(conn, self._topics, row["id"]))

    async def reprocess_batch(
        self, principal: Principal, kb_id: UUID, *, after: UUID | None, limit: int
    ) -> list[UUID]:
        async with transaction(self._pool) as conn:
            return await renew_batch(conn, self._topics, principal, kb_id, after=after, limit=limit)

    async def reembed(
        self, principal: Principal, document_id: UUID, seen: Collection[str] | None = None
    ) -> Document | None:
        async with transaction(self._pool) as conn:
            row = await lock_visible(conn, principal, document_id, seen)
            if row is None:
                return None
            renewed = await renew_vectors(conn, self._topics, row)
        if renewed is None:
            raise Conflict("no text is stored of the newest revision: reprocess it", code="nothing_to_embed")
        return to_document(renewed)

    async def reembed_batch(
        self, principal: Principal, kb_id: UUID, *, after: UUID | None, limit: int
    ) -> list[tuple[UUID, bool]]:
        async with transaction(self._pool) as conn:
            return await renew_vectors_batch(conn, self._topics, principal, kb_id, after=after, limit=limit)

    async def cancel(self, principal: Principal, document_id: UUID) -> Document | None:
        async with transaction(self._pool) as conn:
            row = await lock_visible(conn, principal, document_id)
            if row is not None and row["status"] in IN_PROGRESS:
                row = await cancel_revision(conn, self._topics, row)
            return None if row is None else to_document(row)

    async def delete_all(self, principal: Principal, kb_id: UUID) -> Removed:
        async with transaction(self._pool) as conn:
            rows = await conn.fetch(
                f"{SELECT_VISIBLE} AND d.kb_id = $3 ORDER BY d.id FOR UPDATE OF d", *identity(principal), kb_id
            )
            removal = await remove_documents(conn, self._topics, rows)
        return await look_again(self._pool, removal)

    async def begin(self, document_id: UUID, revision: int) -> Revision | None:
        async with transaction(self._pool) as conn:
            row = await conn.fetchrow(
                """UPDATE documents SET status = 'processing', updated_at = now()
                   WHERE id = $1 AND revision = $2 AND status IN ('pending', 'processing')
                   RETURNING *""",
                document_id,
                revision,
            )
            if row is None:
                return None
            await enqueue_status(conn, self._topics, row)
        return to_revision(row)

    async def save_chunks(self, revision: Revision, drafts: Sequence[ChunkDraft]) -> bool:
        async with transaction(self._pool) as conn:
            current = await conn.fetchrow(
                """SELECT live_revision FROM documents
                   WHERE id = $1 AND revision = $2 AND status = 'processing' FOR UPDATE""",
                revision.document_id,
                revision.revision,
            )
            if current is None:
                return False
            live_revision = current["live_revision"]
            # What an earlier revision left behind without ever having been live.
            await conn.execute(
                "DELETE FROM chunks WHERE document_id = $1 AND revision IS DISTINCT FROM $2",
                revision.document_id,
                live_revision if drafts else None,
            )
            if drafts:
                await store_chunks(conn, self._topics, revision, drafts, live=live_revision is None)
            row = await fetch_one(
                conn,
                """UPDATE documents
                   SET status = $2, chunk_count = $3, embedded_count = 0, updated_at = now(),
                       live_revision = CASE WHEN $3 = 0 THEN revision ELSE coalesce(live_revision, revision) END
                   WHERE id = $1 RETURNING *""",
                revision.document_id,
                Status.EMBEDDING if drafts else Status.EMPTY,
                len(drafts),
            )
            await enqueue_status(conn, self._topics, row)
            return True

    async def fail(self, document_id: UUID, revision: int, code: str, detail: str) -> bool:
        async with transaction(self._pool) as conn:
            row = await conn.fetchrow(
                """UPDATE documents SET status = 'failed', error_code = $3, error_detail = $4, updated_at = now()
                   WHERE id = $1 AND revision = $2 AND status IN ('pending', 'processing')
                   RETURNING *""",
                document_id,
                revision,
                code,
                detail,
            )
            if row is None:
                return False
            await enqueue_status(conn, self._topics, row)
            return True
