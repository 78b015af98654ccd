"""Events that ingest writes into the outbox beside its rows."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import asyncpg
from google.protobuf.timestamp_pb2 import Timestamp

from kbmesh.events.v1 import chunks_pb2, documents_pb2, status_pb2
from kbmesh.messaging import Topics, enqueue
from kbmesh.postgres import Connection

SOURCE: Final = "/kbmesh/ingest"
CHUNKS_PER_EVENT: Final = 32


async def enqueue_uploaded(
    conn: Connection, topics: Topics, document: asyncpg.Record, superseded_storage_key: str
) -> None:
    event = documents_pb2.DocumentUploaded(
        document_id=str(document["id"]),
        kb_id=str(document["kb_id"]),
        revision=document["revision"],
        storage_key=document["storage_key"],
        superseded_storage_key=superseded_storage_key,
        size_bytes=document["size_bytes"],
    )
    await enqueue(conn, topics.documents, event.document_id, event, source=SOURCE)
    await enqueue_status(conn, topics, document)


async def enqueue_deleted(conn: Connection, topics: Topics, document: asyncpg.Record) -> None:
    event = documents_pb2.DocumentDeleted(
        document_id=str(document["id"]),
        kb_id=str(document["kb_id"]),
        revision=document["revision"],
        storage_key=document["storage_key"],
    )
    await enqueue(conn, topics.documents, event.document_id, event, source=SOURCE)
    await enqueue_status(conn, topics, document, status="deleted")


async def enqueue_status(
    conn: Connection, topics: Topics, document: asyncpg.Record, *, status: str | None = None
) -> None:
    name = f"DOCUMENT_STATUS_{(status or document['status']).upper()}"
    occurred_at = Timestamp()
    occurred_at.GetCurrentTime()
    event = status_pb2.DocumentStatusChanged(
        document_id=str(document["id"]),
        kb_id=str(document["kb_id"]),
        revision=document["revision"],
        status=status_pb2.DocumentStatus.Value(name),
        error_code=document["error_code"] or "",
        chunk_count=document["chunk_count"],
        embedded_count=document["embedded_count"],
        occurred_at=occurred_at,
    )
    await enqueue(conn, topics.status, event.document_id, event, source=SOURCE)


async def enqueue_chunks_ready(
    conn: Connection,
    topics: Topics,
    *,
    kind: str,
    source_id: str,
    revision: int,
    chunk_ids: Sequence[UUID],
    recompute: bool = False,
) -> None:
    for start in range(0, len(chunk_ids), CHUNKS_PER_EVENT):
        event = chunks_pb2.ChunksReady(
            chunk_ids=[str(chunk_id) for chunk_id in chunk_ids[start : start + CHUNKS_PER_EVENT]],
            kind=kind,
            source_id=source_id,
            revision=revision,
            recompute=recompute,
        )
        await enqueue(conn, topics.chunks, source_id, event, source=SOURCE)
