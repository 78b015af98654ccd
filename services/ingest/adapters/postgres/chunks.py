import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from kbmesh.auth import Principal
from kbmesh.messaging import Topics
from kbmesh.postgres import Connection
from kbmesh.postgres.access import OWN_OR_TEAMS, identity
from kbmesh.provenance import DOCUMENT_CHUNK, Tier
from services.ingest.adapters.postgres.events import enqueue_chunks_ready
from services.ingest.domain.extraction import ChunkDraft
from services.ingest.domain.models import Chunk, Revision, chunk_id

SELECT_LIVE: Final = f"""
SELECT c.id, c.revision, c.ordinal, c.content, c.metadata, c.token_count, c.tier
FROM documents d
JOIN knowledge_bases kb ON kb.id = d.kb_id
JOIN chunks c ON (c.kind, c.source_id, c.revision) = ('{DOCUMENT_CHUNK}', d.id::text, d.live_revision) AND c.live
WHERE {OWN_OR_TEAMS} AND d.id = $3 AND ($4::integer IS NULL OR c.ordinal > $4)
ORDER BY c.ordinal LIMIT $5"""


async def select_chunks(
    conn: Connection, principal: Principal, document_id: UUID, *, after: int | None, limit: int
) -> list[Chunk]:
    """Live chunks of a document that the principal may see."""
    rows = await conn.fetch(SELECT_LIVE, *identity(principal), document_id, after, limit)
    return [_chunk(dict(row)) for row in rows]


def _chunk(row: dict[str, Any]) -> Chunk:
    metadata = json.loads(row.pop("metadata"))
    return Chunk(
        **{**row, "tier": Tier(row["tier"])},
        page=metadata["page"],
        headings=tuple(metadata["headings"]),
        char_start=metadata["char_start"],
        char_end=metadata["char_end"],
    )


async def store_chunks(
    conn: Connection, topics: Topics, revision: Revision, drafts: Sequence[ChunkDraft], *, live: bool
) -> None:
    """Writes the chunks of a document and asks for their vectors."""
    source_id = str(revision.document_id)
    chunk_ids = await insert_chunks(
        conn,
        kind=DOCUMENT_CHUNK,
        source_id=source_id,
        revision=revision.revision,
        drafts=drafts,
        tier=revision.tier,
        live=live,
        kb_id=revision.kb_id,
        document_id=revision.document_id,
    )
    await enqueue_chunks_ready(
        conn,
        topics,
        kind=DOCUMENT_CHUNK,
        source_id=source_id,
        revision=revision.revision,
        chunk_ids=chunk_ids,
    )


async def insert_chunks(
    conn: Connection,
    *,
    kind: str,
    source_id: str,
    revision: int,
    drafts: Sequence[ChunkDraft],
    tier: Tier,
    live: bool,
    kb_id: UUID | None = None,
    document_id: UUID | None = None,
    valid_until: datetime | None = None,
    metadata: Mapping[str, object] | None = None,
) -> list[UUID]:
    """Writes the chunks of one revision in bulk; their ids, in order."""
    ids = [chunk_id(kind, source_id, revision, draft.ordinal) for draft in drafts]
    rows = [
        {
            "id": id_,
            "kind": kind,
            "source_id": source_id,
            "kb_id": kb_id,
            "document_id": document_id,
            "revision": revision,
            "ordinal": draft.ordinal,
            "header": draft.header,
            "content": draft.content,
            "content_sha256": hashlib.sha256(draft.content.encode()).digest(),
            "token_count": draft.token_count,
            "metadata": json.dumps(
                {
                    "page": draft.page,
                    "headings": draft.headings,
                    "char_start": draft.char_start,
                    "char_end": draft.char_end,
                    **(metadata or {}),
                }
            ),
            "tier": tier.value,
            "valid_until": valid_until,
            "live": live,
        }
        for id_, draft in zip(ids, drafts, strict=True)
    ]
    await conn.copy_records_to_table(
        "chunks", columns=list(rows[0]), records=[tuple(row.values()) for row in rows]
    )
    return ids
