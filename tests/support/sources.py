"""Documents and records as ingest leaves them for the embedder, without the work of ingest."""

import hashlib
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from kbmesh.postgres import Connection, Pool
from kbmesh.provenance import DOCUMENT_CHUNK
from services.embedder.domain.chunks import ReadyChunks, Source


@dataclass(frozen=True)
class Prepared:
    """One revision whose chunks are in the database."""

    source: Source
    chunk_ids: tuple[UUID, ...]
    kb_id: UUID | None = field(default=None)

    @property
    def ready(self) -> ReadyChunks:
        return ReadyChunks(self.source, self.chunk_ids)

    @property
    def document_id(self) -> UUID:
        return UUID(self.source.source_id)


async def add_document(conn: Connection | Pool, *texts: str) -> Prepared:
    """A document in a knowledge base of its own, extracted into one chunk per text."""
    kb_id, document_id = uuid4(), uuid4()
    await conn.execute(
        "INSERT INTO knowledge_bases (id, owner_type, owner_id, name) VALUES ($1, 'user', $2, 'test')",
        kb_id,
        uuid4(),
    )
    await conn.execute(
        """
        INSERT INTO documents (id, kb_id, filename, content_type, category, size_bytes, content_sha256,
                               storage_key, uploader, status, revision, live_revision, chunk_count)
        VALUES ($1, $2, 'test.txt', 'text/plain', 'other', 1, $3, $4, $5, 'embedding', 1, 1, $6)
        """,
        document_id,
        kb_id,
        hashlib.sha256().digest(),
        str(uuid4()),
        uuid4(),
        len(texts),
    )
    source = Source(DOCUMENT_CHUNK, str(document_id), 1)
    return Prepared(source, await _add_chunks(conn, source, texts, kb_id=kb_id, live=True), kb_id)


async def add_revision(conn: Connection | Pool, document: Prepared, *texts: str) -> Prepared:
    """The next revision of a document: invisible until it has all its vectors."""
    revision = await conn.fetchval(
        """
        UPDATE documents
        SET revision = revision + 1, status = 'embedding', error_code = NULL, chunk_count = $2, embedded_count = 0
        WHERE id = $1
        RETURNING revision
        """,
        document.document_id,
        len(texts),
    )
    source = document.source._replace(revision=revision)
    return Prepared(
        source, await _add_chunks(conn, source, texts, kb_id=document.kb_id, live=False), document.kb_id
    )


async def add_record(conn: Connection | Pool, source: Source, *texts: str, live: bool = True) -> Prepared:
    """A revision of a record; the newest of its id."""
    await conn.execute(
        """
        INSERT INTO records (kind, source_id, revision, live_revision, content_sha256, chunk_count)
        VALUES ($1, $2, $3, $3, $4, $5)
        ON CONFLICT (kind, source_id) DO UPDATE
        SET revision = excluded.revision, chunk_count = excluded.chunk_count, embedded_count = 0
        """,
        *source,
        hashlib.sha256().digest(),
        len(texts),
    )
    return Prepared(source, await _add_chunks(conn, source, texts, kb_id=None, live=live))


async def _add_chunks(
    conn: Connection | Pool, source: Source, texts: tuple[str, ...], *, kb_id: UUID | None, live: bool
) -> tuple[UUID, ...]:
    ids = tuple(uuid4() for _ in texts)
    document_id = UUID(source.source_id) if source.kind == DOCUMENT_CHUNK else None
    await conn.executemany(
        """
        INSERT INTO chunks (id, kind, source_id, revision, kb_id, document_id, ordinal, content, content_sha256,
                            token_count, tier, live)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 1, 'CustomerFact', $10)
        """,
        [
            (chunk_id, *source, kb_id, document_id, ordinal, text, hashlib.sha256(text.encode()).digest(), live)
            for ordinal, (chunk_id, text) in enumerate(zip(ids, texts, strict=True))
        ],
    )
    return ids
