import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from kbmesh.postgres import Connection
from kbmesh.provenance import Tier
from services.ingest.domain.extraction import ChunkDraft
from services.ingest.domain.models import chunk_id


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
    ids = [chunk_id(kind, source_id, revision, draft) for draft in drafts]
    rows = [
        {
            "id": id_,
            "kind": kind,
            "source_id": source_id,
            "kb_id": kb_id,
            "document_id": document_id,
            "revision": revision,
            "ordinal": draft.ordinal,
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
