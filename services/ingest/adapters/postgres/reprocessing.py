"""A document's bytes once more, as a new revision."""

from typing import Final
from uuid import UUID

import asyncpg

from kbmesh.auth import Principal
from kbmesh.messaging import Topics
from kbmesh.postgres import Connection, fetch_one
from services.ingest.adapters.postgres.events import enqueue_uploaded
from services.ingest.adapters.postgres.rows import lock_batch

RENEW: Final = """
UPDATE documents
SET revision = revision + 1, status = 'pending', error_code = NULL, error_detail = NULL,
    chunk_count = 0, embedded_count = 0, updated_at = now()
WHERE id = $1
RETURNING *"""


async def renew(conn: Connection, topics: Topics, document_id: UUID) -> asyncpg.Record:
    """A new revision of a document that the caller has locked FOR UPDATE."""
    row = await fetch_one(conn, RENEW, document_id)
    # Both revisions are of one object, so none is superseded.
    await enqueue_uploaded(conn, topics, row, "")
    return row


async def renew_batch(
    conn: Connection, topics: Topics, principal: Principal, kb_id: UUID, *, after: UUID | None, limit: int
) -> list[UUID]:
    """The next documents of a knowledge base in order of id, which is the order of locks."""
    rows = await lock_batch(conn, principal, kb_id, after=after, limit=limit)
    for row in rows:
        await renew(conn, topics, row["id"])
    return [row["id"] for row in rows]
