"""Statements that tell which chunks need the model, and give the others the vector of an older revision.

`{table}` is the vector table of the space.
"""

from typing import Final

_TWIN: Final = """
FROM chunks older JOIN {table} known ON known.chunk_id = older.id
WHERE (older.kind, older.source_id, older.content_sha256) = (c.kind, c.source_id, c.content_sha256)
  AND older.header = c.header AND older.revision < c.revision
"""
"""An older revision's chunk that reads the same to the model and has its vector. It stays at least until `c` has
one too, or is superseded: older chunks go with the swap, and that waits for the last vector."""

PENDING: Final = f"""
SELECT c.id, c.content, c.header
FROM chunks c
LEFT JOIN documents d ON d.id = c.document_id
LEFT JOIN records r ON (r.kind, r.source_id) = (c.kind, c.source_id) AND r.deleted_at IS NULL
WHERE c.id = ANY ($1::uuid[])
  AND c.revision = coalesce(d.revision, r.revision)
  AND NOT EXISTS (SELECT FROM {{table}} v WHERE v.chunk_id = c.id)
  AND NOT EXISTS (SELECT {_TWIN} AND c.id <> ALL ($2::uuid[]))
ORDER BY c.source_id, c.ordinal
"""

REUSE_VECTORS: Final = f"""
INSERT INTO {{table}} (chunk_id, kb_id, kind, live, embedding)
SELECT c.id, c.kb_id, c.kind, c.live, twin.embedding
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS s (kind, source_id, revision)
JOIN chunks c USING (kind, source_id, revision)
CROSS JOIN LATERAL (SELECT known.embedding {_TWIN} LIMIT 1) AS twin
WHERE c.id = ANY ($4::uuid[])
ON CONFLICT (chunk_id) DO NOTHING
"""
