from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from kbmesh.postgres import Pool, connection
from services.search.adapters.postgres import context_passage
from services.search.domain.context import ContextPassage

LOOKED_AT: Final = 1_000
"""The newest of the kinds asked for; among them those of a persona are sought."""

# $1: kinds, $2: records to look at, $3: the persona or NULL, $4: how many. Chunks without a knowledge base are
# those of records. The persona is one of a list, or a text of its own.
_NEWEST: Final = """
SELECT c.id, c.kind, c.source_id, c.kb_id, c.content, c.tier, c.metadata, c.valid_until, NULL AS filename
FROM (SELECT kind, source_id, updated_at FROM records
      WHERE kind = ANY($1::text[]) AND deleted_at IS NULL AND live_revision IS NOT NULL
      ORDER BY updated_at DESC, kind, source_id LIMIT $2) AS r
JOIN chunks AS c ON c.kind = r.kind AND c.source_id = r.source_id AND c.live AND c.ordinal = 0 AND c.kb_id IS NULL
ORDER BY coalesce(c.metadata -> 'attributes' -> 'personas' @> to_jsonb($3::text), false) DESC,
         r.updated_at DESC, c.kind, c.source_id
LIMIT $4
"""

_COUNTS: Final = """
SELECT kind, count(*) AS count FROM records
WHERE kind = ANY($1::text[]) AND deleted_at IS NULL AND live_revision IS NOT NULL GROUP BY kind
"""


class PostgresRecords:
    """Port RecordSource on a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def newest(
        self, kinds: Collection[str], *, persona: str | None, limit: int
    ) -> list[tuple[ContextPassage, datetime | None]]:
        async with connection(self._pool) as conn:
            rows = await conn.fetch(_NEWEST, list(kinds), LOOKED_AT, persona, limit)
        return [(context_passage(row), row["valid_until"]) for row in rows]

    async def counts(self, kinds: Collection[str]) -> Mapping[str, int]:
        async with connection(self._pool) as conn:
            rows = await conn.fetch(_COUNTS, list(kinds))
        return {row["kind"]: row["count"] for row in rows}
