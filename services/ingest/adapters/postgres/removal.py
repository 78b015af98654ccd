import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import asyncpg
import structlog

from kbmesh.errors import Unavailable
from kbmesh.events.v1.documents_pb2 import DocumentUploaded
from kbmesh.messaging import Topics
from kbmesh.postgres import Connection, Pool, connection
from services.ingest.adapters.postgres.events import enqueue_deleted
from services.ingest.domain.models import CANCELLED, IN_PROGRESS, Left, Removed, Status

log = structlog.get_logger(__name__)

LOOK_S: Final = 10.0
"""How long the caller of a deletion waits for the look afterwards."""
LOOK_BATCH: Final = 5000
"""Ids in one statement of that look."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What a deletion is about to take away, and by which ids to look for it afterwards."""

    removed: Removed
    document_ids: Sequence[UUID]
    chunk_ids: Sequence[UUID]


async def remove_documents(conn: Connection, topics: Topics, documents: Sequence[asyncpg.Record]) -> Removal:
    """Deletes documents that the caller has locked FOR UPDATE; chunks and vectors go with them."""
    ids = [document["id"] for document in documents]
    chunks = await conn.fetch("SELECT id FROM chunks WHERE document_id = ANY($1)", ids)
    removed = Removed(
        documents=len(ids),
        chunks=len(chunks),
        vectors=await _count_vectors(conn, ids),
        storage_keys=tuple(document["storage_key"] for document in documents),
        superseded_keys=await _superseded_keys(conn, topics, documents),
        in_progress=sum(document["status"] in IN_PROGRESS for document in documents),
        unsent_messages=await _count_unsent(conn, topics, ids),
    )
    for document in documents:
        await enqueue_deleted(conn, topics, document)
    await conn.execute("DELETE FROM documents WHERE id = ANY($1)", ids)
    return Removal(removed, ids, [chunk["id"] for chunk in chunks])


async def look_again(pool: Pool, removal: Removal) -> Removed:
    """The receipt of a deletion that is committed, with what the database still holds of it.

    Never fails: what was deleted stays deleted, so a look that does not succeed is one that says nothing.
    """
    try:
        async with connection(pool) as conn, asyncio.timeout(LOOK_S):
            left = await _look(conn, removal)
    except (Unavailable, asyncpg.UndefinedTableError) as error:  # the latter: an embedding space went meanwhile
        log.warning("deletion_not_verified", error=type(error).__name__)
        left = None
    return replace(removal.removed, left=left)


async def _look(conn: Connection, removal: Removal) -> Left:
    documents = chunks = vectors = 0
    for ids in _batches(removal.document_ids):
        documents += await conn.fetchval("SELECT count(*) FROM documents WHERE id = ANY($1)", ids)
        chunks += await conn.fetchval("SELECT count(*) FROM chunks WHERE document_id = ANY($1)", ids)
    for table in await _vector_tables(conn):
        for ids in _batches(removal.chunk_ids):
            vectors += await conn.fetchval(f"SELECT count(*) FROM {table} WHERE chunk_id = ANY($1)", ids)
    return Left(documents, chunks, vectors)


def _batches(ids: Sequence[UUID]) -> list[Sequence[UUID]]:
    return [ids[start : start + LOOK_BATCH] for start in range(0, len(ids), LOOK_BATCH)]


async def _count_vectors(conn: Connection, document_ids: Sequence[UUID]) -> int:
    total = 0
    for table in await _vector_tables(conn):
        total += await conn.fetchval(
            f"""SELECT count(*) FROM {table}
                WHERE chunk_id IN (SELECT id FROM chunks WHERE document_id = ANY($1))""",
            document_ids,
        )
    return total


async def _vector_tables(conn: Connection) -> list[str]:
    """The schema allows only plain lower-case names for these tables."""
    return [space["table_name"] for space in await conn.fetch("SELECT table_name FROM embedding_spaces")]


async def _count_unsent(conn: Connection, topics: Topics, document_ids: Sequence[UUID]) -> int:
    count: int = await conn.fetchval(
        """SELECT count(*) FROM outbox
           WHERE published_at IS NULL AND topic = ANY($1) AND key = ANY($2)""",
        [topics.documents, topics.chunks],
        [str(document_id) for document_id in document_ids],
    )
    return count


async def _superseded_keys(
    conn: Connection, topics: Topics, documents: Sequence[asyncpg.Record]
) -> tuple[str, ...]:
    """Objects of earlier revisions that go with a message which may not have been handled yet.

    From what the outbox keeps, which is a day of messages.
    """
    unhandled = [
        str(document["id"])
        for document in documents
        if document["revision"] > 1
        and (document["status"] == Status.PENDING or document["error_code"] == CANCELLED)
    ]
    if not unhandled:
        return ()
    rows = await conn.fetch(
        "SELECT payload FROM outbox WHERE topic = $1 AND key = ANY($2)", topics.documents, unhandled
    )
    keys = (DocumentUploaded.FromString(row["payload"]).superseded_storage_key for row in rows)
    return tuple(sorted({key for key in keys if key}))
