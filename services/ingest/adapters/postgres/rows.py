"""Rows of documents as the handlers see them."""

import json
from collections.abc import Collection
from typing import Final
from uuid import UUID

import asyncpg

from kbmesh.auth import Principal
from kbmesh.errors import PreconditionFailed
from kbmesh.postgres import Connection
from kbmesh.postgres.access import OWN_OR_TEAMS, identity
from kbmesh.provenance import DOCUMENT_CHUNK, Category, Tier, default_tier
from services.ingest.domain.content_type import ContentType
from services.ingest.domain.headers import Origin
from services.ingest.domain.models import Document, Revision, Status

SELECT_VISIBLE: Final = (
    f"SELECT d.* FROM documents d JOIN knowledge_bases kb ON kb.id = d.kb_id WHERE {OWN_OR_TEAMS}"
)

PLAIN_FIELDS: Final = (
    *("id", "kb_id", "filename", "size_bytes", "content_sha256", "storage_key", "uploader"),
    *("error_code", "error_detail", "revision", "live_revision", "chunk_count", "embedded_count"),
    *("created_at", "updated_at"),
)


def to_document(row: asyncpg.Record) -> Document:
    return Document(
        **{field: row[field] for field in PLAIN_FIELDS},
        content_type=ContentType(row["content_type"]),
        category=Category(row["category"]),
        source_priority=row["source_priority"] and Tier(row["source_priority"]),
        metadata=json.loads(row["metadata"]),
        status=Status(row["status"]),
    )


def to_revision(row: asyncpg.Record) -> Revision:
    category = Category(row["category"])
    return Revision(
        document_id=row["id"],
        kb_id=row["kb_id"],
        revision=row["revision"],
        storage_key=row["storage_key"],
        content_type=ContentType(row["content_type"]),
        origin=Origin(row["filename"], category),
        tier=Tier(row["source_priority"] or default_tier(DOCUMENT_CHUNK, category)),
    )


async def lock_visible(
    conn: Connection, principal: Principal, document_id: UUID, seen: Collection[str] | None = None
) -> asyncpg.Record | None:
    """The row of a document that the principal may see, locked until the end of the transaction.

    Raises:
        PreconditionFailed: it is none of the versions that the caller has seen, if any are named.
    """
    row = await conn.fetchrow(f"{SELECT_VISIBLE} AND d.id = $3 FOR UPDATE OF d", *identity(principal), document_id)
    if row is not None and seen is not None and to_document(row).version not in seen:
        raise PreconditionFailed("the document has changed since")
    return row


async def lock_batch(
    conn: Connection, principal: Principal, kb_id: UUID, *, after: UUID | None, limit: int
) -> list[asyncpg.Record]:
    """The next documents of a knowledge base that the principal may see, locked in order of id."""
    return await conn.fetch(
        f"""{SELECT_VISIBLE} AND d.kb_id = $3 AND ($4::uuid IS NULL OR d.id > $4)
            ORDER BY d.id LIMIT $5 FOR UPDATE OF d""",
        *identity(principal),
        kb_id,
        after,
        limit,
    )
