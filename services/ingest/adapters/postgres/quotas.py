"""What an owner may keep. Checked in the transaction of the upload, one upload of an owner after the other."""

from typing import Final

import asyncpg

from kbmesh.errors import PermissionDenied
from kbmesh.postgres import Connection, fetch_one
from services.ingest.domain.models import Quota

LOCK: Final = 1_802_661_751
"""The kind of these advisory locks; the second key is a hash of the owner."""


async def lock_owner(conn: Connection, quota: Quota, kb: asyncpg.Record) -> None:
    """Until the end of the transaction no other upload of the owner of `kb` can count what it has."""
    if quota.max_documents or quota.max_bytes:
        owner = f"{kb['owner_type']}:{kb['owner_id']}"
        await conn.execute("SELECT pg_advisory_xact_lock($1::int, hashtext($2))", LOCK, owner)


async def require_quota(
    conn: Connection, quota: Quota, kb: asyncpg.Record, *, new_document: bool, grown_by: int
) -> None:
    """To be asked when the upload is written: the refusal rolls it back.

    Only what grows is refused, so that an owner above a lowered quota can still replace and shrink.

    Raises:
        PermissionDenied: `quota_documents` or `quota_bytes`, with the numbers.
    """
    documents_count = quota.max_documents and new_document
    bytes_count = quota.max_bytes and grown_by > 0
    if not documents_count and not bytes_count:
        return
    kept = await fetch_one(
        conn,
        """SELECT count(*) AS documents, coalesce(sum(d.size_bytes), 0)::bigint AS bytes
           FROM documents d JOIN knowledge_bases kb ON kb.id = d.kb_id
           WHERE kb.owner_type = $1 AND kb.owner_id = $2""",
        kb["owner_type"],
        kb["owner_id"],
    )
    if documents_count and kept["documents"] > quota.max_documents:
        raise PermissionDenied(
            f"the owner of this knowledge base has {kept['documents'] - 1} documents of at most"
            f" {quota.max_documents}; delete some first",
            code="quota_documents",
        )
    if bytes_count and kept["bytes"] > quota.max_bytes:
        raise PermissionDenied(
            f"with this file the owner of this knowledge base would have {kept['bytes']} bytes of at most"
            f" {quota.max_bytes}; delete some documents first",
            code="quota_bytes",
        )
