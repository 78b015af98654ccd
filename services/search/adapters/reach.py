"""What a statement over document chunks becomes when it is to look in other kinds, too."""

# ruff: noqa: S608 - what is put into the statements are constants, and numbers of arguments

import json
from typing import Any, Final

from kbmesh.provenance import DOCUMENT_CHUNK
from services.search.adapters.statements import (
    IN_BASES,
    OF_BASES,
    OF_CHUNKS,
    OF_DOCUMENTS_ONLY,
    OF_VECTORS,
    VISIBLE,
)
from services.search.domain.context import Reach
from services.search.domain.retrieval import Scan

# {kinds}: the kinds asked for. Chunks without a knowledge base are those of records, which every caller sees.
VISIBLE_KINDS: Final = f"(kind = ANY({{kinds}}) AND (kb_id IS NULL OR {OF_BASES}))"
# The same where no records are asked for, which then need not be read to be left out.
_VISIBLE_DOCUMENTS: Final = f"(kind = ANY({{kinds}}) AND {OF_BASES})"

# What keeps count of chunks, with the columns of VISIBLE_KINDS.
_SOURCES: Final = """FROM (SELECT 'document_chunk' AS kind, kb_id, chunk_count FROM documents
          UNION ALL SELECT kind, NULL, chunk_count FROM records) AS sources"""

# {attributes}: what the metadata of a record, or of a document, is to hold.
_HAS: Final = f"""(metadata -> 'attributes' @> {{attributes}} OR document_id IN (
        SELECT documents.id FROM documents WHERE {OF_BASES} AND documents.metadata @> {{attributes}}))"""
_OF_CHUNKS: Final = f"AND {_HAS}"
# By index: each row that the index gives is looked up, so that the order in which it gives them stays.
_OF_VECTORS: Final = {
    Scan.EXACT: f"""AND chunk_id IN (
        SELECT chunks.id FROM chunks WHERE chunks.live AND chunks.kind = ANY({{kinds}}) AND {_HAS})""",
    Scan.INDEX: f"AND (SELECT {_HAS} FROM chunks WHERE chunks.id = chunk_id)",
}

# $4: ids of chunks.
CONTEXT_PASSAGES: Final = f"""
SELECT c.id, c.kind, c.source_id, c.kb_id, c.content, c.tier, c.metadata, d.filename
FROM (SELECT * FROM chunks WHERE id = ANY($4::uuid[]) AND {VISIBLE}) AS c
LEFT JOIN documents AS d ON d.id = c.document_id
"""


def reaching(visible: Reach, scan: Scan, statement: str, *arguments: object) -> tuple[Any, ...]:
    """`statement` and its arguments, for the chunks that `visible` admits."""
    names = {"kinds": f"${len(arguments) + 1}::text[]", "attributes": f"${len(arguments) + 2}::jsonb"}
    values = [*arguments, list(visible.kinds)]
    admitted = _VISIBLE_DOCUMENTS if visible.kinds == {DOCUMENT_CHUNK} else VISIBLE_KINDS
    statement = (
        statement.replace(OF_DOCUMENTS_ONLY, "")
        .replace("FROM documents", _SOURCES)
        .replace(IN_BASES, admitted.replace(OF_BASES, IN_BASES).format_map(names))
        .replace(OF_BASES, admitted.format_map(names))
    )
    if visible.attributes and (OF_CHUNKS in statement or OF_VECTORS in statement):
        values.append(json.dumps(dict(visible.attributes)))
        statement = statement.replace(OF_CHUNKS, _OF_CHUNKS.format_map(names)).replace(
            OF_VECTORS, _OF_VECTORS[scan].format_map(names)
        )
    return statement, *values
