"""An upload that becomes a document, or a revision of one."""

import json
from typing import Final
from uuid import uuid4

import asyncpg

from kbmesh.auth import Principal
from kbmesh.errors import Conflict
from kbmesh.messaging import Topics
from kbmesh.postgres import Connection, fetch_one
from kbmesh.postgres.access import OWN_OR_TEAMS, identity
from services.ingest.adapters.postgres.events import enqueue_uploaded
from services.ingest.adapters.postgres.idempotency import remember, replay
from services.ingest.adapters.postgres.quotas import lock_owner, require_quota
from services.ingest.adapters.postgres.rows import to_document
from services.ingest.domain.models import Document, Quota, Status, StoredUpload

INSERT: Final = """
INSERT INTO documents (id, kb_id, filename, content_type, category, source_priority, metadata, size_bytes,
                       content_sha256, storage_key, uploader)
VALUES ($1, $10, $11, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (kb_id, filename) DO NOTHING
RETURNING *"""

REPLACE: Final = """
UPDATE documents
SET content_type = $2, category = $3, source_priority = $4, metadata = $5, size_bytes = $6, content_sha256 = $7,
    storage_key = $8, uploader = $9, revision = revision + 1, status = 'pending', error_code = NULL,
    error_detail = NULL, chunk_count = 0, embedded_count = 0, updated_at = now()
WHERE id = $1
RETURNING *"""

# Metadata has no part in extraction or search: a change of it alone needs no revision.
NOTE: Final = """
UPDATE documents SET metadata = $2, updated_at = now() WHERE id = $1 AND metadata <> $2 RETURNING *"""


async def register_upload(
    conn: Connection, topics: Topics, quota: Quota, principal: Principal, upload: StoredUpload
) -> tuple[Document, bool] | None:
    """As the port's `register`, in the transaction of the caller."""
    # The lock keeps the knowledge base from being deleted before the document is in it.
    kb = await conn.fetchrow(
        f"""SELECT owner_type, owner_id FROM knowledge_bases kb
            WHERE {OWN_OR_TEAMS} AND kb.id = $3 FOR KEY SHARE""",
        *identity(principal),
        upload.kb_id,
    )
    if kb is None:
        return None
    if replayed := await replay(conn, upload):
        return replayed
    await lock_owner(conn, quota, kb)
    metadata = json.dumps(upload.metadata)
    said = (
        upload.content_type,
        upload.category,
        upload.source_priority,
        metadata,
        upload.size_bytes,
        upload.content_sha256,
        upload.storage_key,
        upload.uploader,
    )
    row = await conn.fetchrow(INSERT, uuid4(), *said, upload.kb_id, upload.filename)
    superseded = ""
    grown_by = upload.size_bytes
    if row is None:
        current = await conn.fetchrow(
            "SELECT * FROM documents WHERE kb_id = $1 AND filename = $2 FOR UPDATE",
            upload.kb_id,
            upload.filename,
        )
        if current is None:
            raise Conflict("a document of that name was deleted in this moment; upload it again")
        if _same(current, upload):
            current = await conn.fetchrow(NOTE, current["id"], metadata) or current
            await remember(conn, upload, current, changed=False)
            return to_document(current), False
        superseded = current["storage_key"]
        grown_by -= current["size_bytes"]
        row = await fetch_one(conn, REPLACE, current["id"], *said)
    await require_quota(conn, quota, kb, new_document=not superseded, grown_by=grown_by)
    await enqueue_uploaded(conn, topics, row, superseded)
    await remember(conn, upload, row, changed=True)
    return to_document(row), True


def _same(current: asyncpg.Record, upload: StoredUpload) -> bool:
    return bool(
        current["content_sha256"] == upload.content_sha256
        and current["category"] == upload.category
        and current["source_priority"] == upload.source_priority
        and current["status"] != Status.FAILED
    )
