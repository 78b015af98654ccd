from typing import Final

import asyncpg

from kbmesh.messaging import Topics
from kbmesh.postgres import Connection, fetch_one
from services.ingest.adapters.postgres.events import enqueue_status
from services.ingest.domain.models import CANCELLED

DETAIL: Final = "Processing was cancelled. Reprocess the document, or upload it again."


async def cancel_revision(conn: Connection, topics: Topics, document: asyncpg.Record) -> asyncpg.Record:
    """Calls off the newest revision of a document that the caller has locked FOR UPDATE.

    Its chunks go, so that a message about them, which may be under way, finds nothing to embed or to count.
    """
    row = await fetch_one(
        conn,
        """UPDATE documents
           SET status = 'failed', error_code = $2, error_detail = $3, chunk_count = 0, embedded_count = 0,
               live_revision = nullif(live_revision, revision), updated_at = now()
           WHERE id = $1 RETURNING *""",
        document["id"],
        CANCELLED,
        DETAIL,
    )
    await conn.execute(
        "DELETE FROM chunks WHERE document_id = $1 AND revision = $2", document["id"], document["revision"]
    )
    await enqueue_status(conn, topics, row)
    return row
