from collections.abc import Collection, Mapping, Sequence
from typing import Final
from uuid import UUID

from asyncpg import Record
from pgvector import Vector

from kbmesh.errors import Unavailable
from kbmesh.events.v1.status_pb2 import DocumentStatus, DocumentStatusChanged
from kbmesh.messaging import enqueue
from kbmesh.postgres import Connection, Pool, connection, transaction
from kbmesh.provenance import DOCUMENT_CHUNK
from services.embedder.adapters.postgres.reuse import PENDING, REUSE_VECTORS
from services.embedder.adapters.postgres.spaces import SPACES_LOCK
from services.embedder.domain.chunks import PendingChunk, ReadyChunks, Source, Stored
from services.embedder.domain.encoding import Vectors
from services.embedder.domain.spaces import Space

EVENT_SOURCE: Final = "/kbmesh/embedder"
SWAP_TIMEOUT_S: Final = 300
"""A swap touches every vector of a document; the index takes about a thousand of them per second."""

_SPACES: Final = "SELECT id, model, dimensions, status FROM embedding_spaces"

_LOCK_DOCUMENTS: Final = "SELECT id, revision FROM documents WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE"

_LOCK_KINDS: Final = "SELECT FROM generations WHERE kind = ANY ($1::text[]) ORDER BY kind FOR UPDATE"

_LOCK_RECORDS: Final = """
SELECT r.kind, r.source_id, r.revision
FROM records r JOIN unnest($1::text[], $2::text[]) AS s (kind, source_id) USING (kind, source_id)
WHERE r.deleted_at IS NULL
ORDER BY r.kind, r.source_id
FOR UPDATE OF r
"""

INSERT_VECTORS: Final = """
INSERT INTO {table} (chunk_id, kb_id, kind, live, embedding)
SELECT c.id, c.kb_id, c.kind, c.live, v.embedding
FROM unnest($4::uuid[], $5::vector[]) AS v (chunk_id, embedding)
JOIN chunks c ON c.id = v.chunk_id
JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS s (kind, source_id, revision)
    USING (kind, source_id, revision)
ON CONFLICT (chunk_id) DO NOTHING
"""

_LEAVE_BEHIND: Final = """
INSERT INTO space_backlog (space_id, chunk_id)
SELECT $4, c.id
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS s (kind, source_id, revision)
JOIN chunks c USING (kind, source_id, revision)
WHERE c.id = ANY ($5::uuid[]) AND NOT EXISTS (SELECT FROM {table} v WHERE v.chunk_id = c.id)
ON CONFLICT DO NOTHING
"""

_COUNT_VECTORS: Final = """
SELECT c.kind, c.source_id, c.revision, count(*) AS embedded
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS s (kind, source_id, revision)
JOIN chunks c USING (kind, source_id, revision)
JOIN {table} v ON v.chunk_id = c.id
GROUP BY c.kind, c.source_id, c.revision
"""

_ADVANCE_DOCUMENTS: Final = """
UPDATE documents d
SET embedded_count = p.embedded,
    status        = CASE WHEN p.embedded = d.chunk_count THEN 'ready' ELSE d.status END,
    error_code    = CASE WHEN p.embedded = d.chunk_count THEN NULL ELSE d.error_code END,
    error_detail  = CASE WHEN p.embedded = d.chunk_count THEN NULL ELSE d.error_detail END,
    live_revision = CASE WHEN p.embedded = d.chunk_count THEN d.revision ELSE d.live_revision END,
    updated_at    = now()
FROM unnest($1::uuid[], $2::integer[]) AS p (id, embedded)
WHERE d.id = p.id
  AND (d.embedded_count <> p.embedded OR (p.embedded = d.chunk_count AND d.status <> 'ready'))
RETURNING d.*
"""

# Of a generation that is not live yet, a record waits for all the others.
_ADVANCE_RECORDS: Final = """
UPDATE records r
SET embedded_count = p.embedded,
    live_revision  = CASE WHEN p.embedded = r.chunk_count AND NOT p.waits THEN r.revision ELSE r.live_revision END,
    updated_at     = now()
FROM (SELECT e.*, n.generation > coalesce(g.live, 0) AS waits
      FROM unnest($1::text[], $2::text[], $3::integer[]) AS e (kind, source_id, embedded)
      JOIN records n USING (kind, source_id) LEFT JOIN generations g USING (kind)) AS p
WHERE (r.kind, r.source_id) = (p.kind, p.source_id)
  AND (r.embedded_count <> p.embedded
       OR (p.embedded = r.chunk_count AND r.live_revision IS DISTINCT FROM r.revision))
RETURNING r.kind, r.source_id, r.revision, r.embedded_count = r.chunk_count AS complete,
    r.live_revision IS NOT DISTINCT FROM r.revision AS live, p.waits
"""

_DELETE_OLDER: Final = """
DELETE FROM chunks c
USING unnest($1::text[], $2::text[], $3::bigint[]) AS s (kind, source_id, revision)
WHERE (c.kind, c.source_id) = (s.kind, s.source_id) AND c.revision < s.revision
"""

_CHUNKS_LIVE: Final = """
UPDATE chunks c
SET live = true
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS s (kind, source_id, revision)
WHERE (c.kind, c.source_id, c.revision) = (s.kind, s.source_id, s.revision) AND NOT c.live
"""

_VECTORS_LIVE: Final = """
UPDATE {table} v
SET live = true
FROM chunks c JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS s (kind, source_id, revision)
    USING (kind, source_id, revision)
WHERE v.chunk_id = c.id AND NOT v.live
"""

_FAIL_DOCUMENT: Final = """
UPDATE documents
SET status = 'failed', error_code = $3, error_detail = $4, updated_at = now()
WHERE id = $1 AND revision = $2 AND status <> 'ready' AND error_code IS DISTINCT FROM $3
  AND error_code IS DISTINCT FROM 'cancelled'
RETURNING *
"""


class PostgresVectorStore:
    """Vectors of the active embedding space beside the documents they belong to.

    Rows are locked in one order in the whole project: documents and records, then chunks, then vectors.
    """

    def __init__(self, pool: Pool, *, status_topic: str) -> None:
        self._pool = pool
        self._status_topic = status_topic

    async def pending(self, batch: Sequence[ReadyChunks], space: Space) -> list[PendingChunk]:
        ids = [chunk_id for ready in batch for chunk_id in ready.chunk_ids]
        recompute = [chunk_id for ready in batch if ready.recompute for chunk_id in ready.chunk_ids]
        async with connection(self._pool) as conn:
            rows = await conn.fetch(PENDING.format(table=space.table), ids, recompute)
        return [PendingChunk(**row) for row in rows]

    async def store(
        self, batch: Sequence[ReadyChunks], chunk_ids: Sequence[UUID], vectors: Vectors, space: Space
    ) -> Stored:
        async with transaction(self._pool) as conn:
            await conn.execute("SELECT pg_advisory_xact_lock_shared($1)", SPACES_LOCK)
            others = await _other_spaces(conn, space)
            newest = await _lock_newest(conn, {ready.source for ready in batch})
            if not newest:
                return Stored(vectors=0, documents_ready=0)
            inserted = await conn.execute(
                INSERT_VECTORS.format(table=space.table),
                *_columns(newest),
                chunk_ids,
                [Vector(vector) for vector in vectors],
            )
            all_ids = [chunk_id for ready in batch for chunk_id in ready.chunk_ids]
            reusing = [chunk_id for ready in batch if not ready.recompute for chunk_id in ready.chunk_ids]
            reused = await conn.execute(REUSE_VECTORS.format(table=space.table), *_columns(newest), reusing)
            embedded = {
                Source(row["kind"], row["source_id"], row["revision"]): row["embedded"]
                for row in await conn.fetch(_COUNT_VECTORS.format(table=space.table), *_columns(newest))
            }
            documents = await _advance_documents(conn, embedded)
            complete = [_source(row) for row in documents if row["status"] == "ready"]
            ready = len(complete)
            live_records, waiting_kinds = await _advance_records(conn, embedded)
            complete += live_records
            for other in others:
                await conn.execute(REUSE_VECTORS.format(table=other.table), *_columns(newest), reusing)
                await conn.execute(_LEAVE_BEHIND.format(table=other.table), *_columns(newest), other.id, all_ids)
            if complete:
                await _swap(conn, complete, [space, *others])
            for kind in waiting_kinds:
                await conn.execute("SELECT complete_generation($1)", kind, timeout=SWAP_TIMEOUT_S)
            for row in documents:
                await self._announce(conn, row)
        return Stored(vectors=_rows(inserted), reused=_rows(reused), documents_ready=ready)

    async def mark_failed(self, source: Source, *, code: str, detail: str) -> None:
        if source.kind != DOCUMENT_CHUNK:
            return
        async with transaction(self._pool) as conn:
            row = await conn.fetchrow(_FAIL_DOCUMENT, UUID(source.source_id), source.revision, code, detail)
            if row is not None:
                await self._announce(conn, row)

    async def _announce(self, conn: Connection, document: Record) -> None:
        event = DocumentStatusChanged(
            document_id=str(document["id"]),
            kb_id=str(document["kb_id"]),
            revision=document["revision"],
            status=DocumentStatus.Value(f"DOCUMENT_STATUS_{document['status'].upper()}"),
            error_code=document["error_code"] or "",
            chunk_count=document["chunk_count"],
            embedded_count=document["embedded_count"],
        )
        event.occurred_at.FromDatetime(document["updated_at"])
        await enqueue(conn, self._status_topic, event.document_id, event, source=EVENT_SOURCE)


async def _other_spaces(conn: Connection, active: Space) -> list[Space]:
    """Those that the backlog keeps up to date. Raises Unavailable when `active` is not the active one any more."""
    rows = await conn.fetch(_SPACES)
    if active.id not in {row["id"] for row in rows if row["status"] == "active"}:
        raise Unavailable(f"{active.id} is not the active space any more", code="space_changed")
    return [Space(row["model"], row["dimensions"]) for row in rows if row["id"] != active.id]


async def _swap(conn: Connection, complete: Collection[Source], spaces: Collection[Space]) -> None:
    """Search sees these revisions from the commit on, and no older one."""
    live = (_VECTORS_LIVE.format(table=space.table) for space in spaces)
    for statement in (_DELETE_OLDER, _CHUNKS_LIVE, *live):
        await conn.execute(statement, *_columns(complete), timeout=SWAP_TIMEOUT_S)


async def _lock_newest(conn: Connection, sources: Collection[Source]) -> list[Source]:
    """Locks the rows of `sources` until the end of the transaction; gives those that are the newest revision."""
    documents = [UUID(source.source_id) for source in sources if source.kind == DOCUMENT_CHUNK]
    records = [source for source in sources if source.kind != DOCUMENT_CHUNK]
    newest = [_source(row) for row in await conn.fetch(_LOCK_DOCUMENTS, documents)] if documents else []
    if records:
        kinds, ids, _ = _columns(records)
        await conn.execute(_LOCK_KINDS, kinds)
        newest += [Source(*row.values()) for row in await conn.fetch(_LOCK_RECORDS, kinds, ids)]
    return [source for source in newest if source in sources]


async def _advance_documents(conn: Connection, embedded: Mapping[Source, int]) -> list[Record]:
    counts = {UUID(source.source_id): n for source, n in embedded.items() if source.kind == DOCUMENT_CHUNK}
    return await conn.fetch(_ADVANCE_DOCUMENTS, list(counts), list(counts.values())) if counts else []


async def _advance_records(conn: Connection, embedded: Mapping[Source, int]) -> tuple[list[Source], list[str]]:
    """Advances records; gives those that are complete and live now, and the kinds whose next generation may have
    become complete."""
    counts = {source: n for source, n in embedded.items() if source.kind != DOCUMENT_CHUNK}
    if not counts:
        return [], []
    kinds, ids, _ = _columns(counts)
    rows = await conn.fetch(_ADVANCE_RECORDS, kinds, ids, list(counts.values()))
    complete = [row for row in rows if row["complete"]]
    live = [Source(row["kind"], row["source_id"], row["revision"]) for row in complete if row["live"]]
    return live, sorted({row["kind"] for row in complete if row["waits"]})


def _rows(command_tag: str) -> int:
    """How many rows a statement wrote, from "INSERT 0 3"."""
    return int(command_tag.rsplit(" ", 1)[-1])


def _source(document: Record) -> Source:
    return Source(DOCUMENT_CHUNK, str(document["id"]), document["revision"])


def _columns(sources: Collection[Source]) -> tuple[list[str], list[str], list[int]]:
    return (
        [source.kind for source in sources],
        [source.source_id for source in sources],
        [source.revision for source in sources],
    )
