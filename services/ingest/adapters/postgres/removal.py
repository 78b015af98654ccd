from collections.abc import Sequence
from uuid import UUID

import asyncpg

from kbmesh.messaging import Topics
from kbmesh.postgres import Connection
from services.ingest.adapters.postgres.events import enqueue_deleted
from services.ingest.domain.models import Removed


async def remove_documents(conn: Connection, topics: Topics, documents: Sequence[asyncpg.Record]) -> Removed:
    """Deletes documents that the caller has locked FOR UPDATE; chunks and vectors go with them."""
    ids = [document["id"] for document in documents]
    chunks: int = await conn.fetchval("SELECT count(*) FROM chunks WHERE document_id = ANY($1)", ids)
    vectors = await _count_vectors(conn, ids)
    for document in documents:
        await enqueue_deleted(conn, topics, document)
    await conn.execute("DELETE FROM documents WHERE id = ANY($1)", ids)
    return Removed(len(ids), chunks, vectors, tuple(document["storage_key"] for document in documents))


async def _count_vectors(conn: Connection, document_ids: Sequence[UUID]) -> int:
    total = 0
    for space in await conn.fetch("SELECT table_name FROM embedding_spaces"):
        # The schema allows only plain lower-case names for these tables.
        total += await conn.fetchval(
            f"""SELECT count(*) FROM {space["table_name"]}
                WHERE chunk_id IN (SELECT id FROM chunks WHERE document_id = ANY($1))""",
            document_ids,
        )
    return total
