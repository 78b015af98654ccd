"""A document's chunks once more, as a new revision whose vectors are yet to be computed."""

from typing import Final
from uuid import UUID

import asyncpg

from kbmesh.auth import Principal
from kbmesh.messaging import Topics
from kbmesh.postgres import Connection, fetch_one
from kbmesh.provenance import DOCUMENT_CHUNK
from services.ingest.adapters.postgres.events import enqueue_chunks_ready, enqueue_status
from services.ingest.adapters.postgres.rows import lock_batch
from services.ingest.domain.models import chunk_id

COPY_TIMEOUT_S: Final = 300
"""PostgreSQL takes in a few thousand chunks per second."""

NEXT_REVISION: Final = """
UPDATE documents
SET revision = revision + 1, status = 'embedding', error_code = NULL, error_detail = NULL,
    chunk_count = $2, embedded_count = 0, updated_at = now()
WHERE id = $1
RETURNING *"""

COPY_CHUNKS: Final = """
INSERT INTO chunks (id, kind, source_id, kb_id, document_id, revision, ordinal, header, content, content_sha256,
                    token_count, metadata, tier, valid_until, live)
SELECT copy.id, c.kind, c.source_id, c.kb_id, c.document_id, $2, c.ordinal, c.header, c.content, c.content_sha256,
       c.token_count, c.metadata, c.tier, c.valid_until, false
FROM chunks c JOIN unnest($4::uuid[], $5::integer[]) AS copy (id, ordinal) USING (ordinal)
WHERE c.document_id = $1 AND c.revision = $3"""


async def renew_vectors(conn: Connection, topics: Topics, document: asyncpg.Record) -> asyncpg.Record | None:
    """A new revision of a document that the caller has locked FOR UPDATE; None: its newest one has no chunks."""
    document_id, old = document["id"], document["revision"]
    rows = await conn.fetch(
        "SELECT ordinal FROM chunks WHERE document_id = $1 AND revision = $2 ORDER BY ordinal", document_id, old
    )
    if not rows:
        return None
    row = await fetch_one(conn, NEXT_REVISION, document_id, len(rows))
    source_id, new = str(document_id), row["revision"]
    ordinals = [chunk["ordinal"] for chunk in rows]
    ids = [chunk_id(DOCUMENT_CHUNK, source_id, new, ordinal) for ordinal in ordinals]
    await conn.execute(COPY_CHUNKS, document_id, new, old, ids, ordinals, timeout=COPY_TIMEOUT_S)
    # A revision that this one overtakes before it was live.
    await conn.execute(
        "DELETE FROM chunks WHERE document_id = $1 AND revision <> $2 AND revision IS DISTINCT FROM $3",
        document_id,
        new,
        row["live_revision"],
        timeout=COPY_TIMEOUT_S,
    )
    await enqueue_status(conn, topics, row)
    await enqueue_chunks_ready(
        conn, topics, kind=DOCUMENT_CHUNK, source_id=source_id, revision=new, chunk_ids=ids, recompute=True
    )
    return row


async def renew_vectors_batch(
    conn: Connection, topics: Topics, principal: Principal, kb_id: UUID, *, after: UUID | None, limit: int
) -> list[tuple[UUID, bool]]:
    """The next documents of a knowledge base in order of id, which is the order of locks; False: no chunks."""
    rows = await lock_batch(conn, principal, kb_id, after=after, limit=limit)
    return [(row["id"], await renew_vectors(conn, topics, row) is not None) for row in rows]
