"""Answers that are given again when an upload is repeated under its Idempotency-Key."""

import hashlib
import json
from dataclasses import replace
from typing import Final

import asyncpg

from kbmesh.errors import Conflict
from kbmesh.postgres import Connection
from services.ingest.adapters.postgres.rows import to_document
from services.ingest.domain.models import Document, StoredUpload

LIFETIME: Final = "interval '24 hours'"

FIND: Final = f"""
SELECT * FROM idempotency_keys WHERE (caller, key) = ($1, $2) AND created_at > now() - {LIFETIME}"""

REMEMBER: Final = """
INSERT INTO idempotency_keys (caller, key, fingerprint, document_id, revision, changed)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (caller, key) DO UPDATE
SET (fingerprint, document_id, revision, changed, created_at) =
    (excluded.fingerprint, excluded.document_id, excluded.revision, excluded.changed, now())"""

PURGE: Final = f"""
DELETE FROM idempotency_keys WHERE (caller, key) IN
    (SELECT caller, key FROM idempotency_keys WHERE created_at <= now() - {LIFETIME}
     ORDER BY created_at LIMIT 100 FOR UPDATE SKIP LOCKED)"""


async def replay(conn: Connection, upload: StoredUpload) -> tuple[Document, bool] | None:
    """What the first upload under this key was answered; None: this is the first, and others wait for it.

    Raises:
        Conflict: the key came with another upload (idempotency_key_reused), or its document is deleted by now.
    """
    if upload.idempotency_key is None:
        return None
    # Taken between knowledge base and document, and held until the end of the transaction.
    await conn.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"{upload.uploader}:{upload.idempotency_key}"
    )
    first = await conn.fetchrow(FIND, upload.uploader, upload.idempotency_key)
    if first is None:
        return None
    if first["fingerprint"] != _fingerprint(upload):
        raise Conflict("this Idempotency-Key came with another upload", code="idempotency_key_reused")
    row = await conn.fetchrow("SELECT * FROM documents WHERE id = $1", first["document_id"])
    if row is None:
        raise Conflict("the document that this Idempotency-Key made is deleted", code="document_deleted")
    return replace(to_document(row), revision=first["revision"], metadata=upload.metadata), first["changed"]


async def remember(conn: Connection, upload: StoredUpload, document: asyncpg.Record, *, changed: bool) -> None:
    """Keeps the answer for a day, if the upload has a key; and removes some that are older."""
    if upload.idempotency_key is None:
        return
    await conn.execute(
        REMEMBER,
        upload.uploader,
        upload.idempotency_key,
        _fingerprint(upload),
        document["id"],
        document["revision"],
        changed,
    )
    await conn.execute(PURGE)


def _fingerprint(upload: StoredUpload) -> bytes:
    said = (
        *(upload.kb_id, upload.filename, upload.category, upload.source_priority, upload.content_sha256.hex()),
        upload.metadata,
    )
    return hashlib.sha256(json.dumps(said, default=str, sort_keys=True).encode()).digest()
