"""Rows of documents as the handlers see them."""

from typing import Final

import asyncpg

from kbmesh.postgres.access import OWN_OR_TEAMS
from kbmesh.provenance import Category, Tier
from services.ingest.domain.content_type import ContentType
from services.ingest.domain.models import Document, Status

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
        status=Status(row["status"]),
    )
