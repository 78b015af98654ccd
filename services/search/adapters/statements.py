"""The SQL of search. Every statement that reads chunks or vectors takes the caller as $1 to $3 (user, teams,
knowledge bases asked for or NULL) and applies the access predicate itself."""

# ruff: noqa: S608 - what is put into the statements are constants of this module, and a checked table name

from typing import Final

from kbmesh.postgres.access import OWN_OR_TEAMS

VISIBLE_BASES: Final = f"""ARRAY(
        SELECT id FROM knowledge_bases
        WHERE {OWN_OR_TEAMS}
          AND ($3::uuid[] IS NULL OR id = ANY($3::uuid[])))"""

# Where the conditions of a filter go (filters.py), according to what has the rows.
OF_CHUNKS: Final = "/* narrowed chunks */"
OF_VECTORS: Final = "/* narrowed vectors */"

# What reach.py puts other kinds in the place of. OF_BASES finds rows, by an index on the base. IN_BASES says the
# same of rows that another index has found: for each of them PostgreSQL would go through an array of perhaps
# thousands of bases, and looks into a hash table instead. IS TRUE keeps it from becoming a join.
OF_BASES: Final = f"kb_id = ANY({VISIBLE_BASES})"
IN_BASES: Final = f"""(kb_id IN (
        SELECT id FROM knowledge_bases
        WHERE {OWN_OR_TEAMS}
          AND ($3::uuid[] IS NULL OR id = ANY($3::uuid[])))) IS TRUE"""
OF_DOCUMENTS_ONLY: Final = "kind = 'document_chunk' AND "

_VISIBLE: Final = f"live AND {OF_DOCUMENTS_ONLY}{OF_BASES}"
VISIBLE: Final = f"{_VISIBLE} {OF_CHUNKS}"
VISIBLE_VECTORS: Final = f"{_VISIBLE} {OF_VECTORS}"

ACTIVE_SPACE: Final = "SELECT id, table_name, dimensions FROM embedding_spaces WHERE status = 'active'"

# -1 before the first ANALYZE.
ALL_CHUNKS: Final = "SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'chunks'::regclass"

# $4: count no further than this. Only chunks of documents have a knowledge base, so the index alone can answer.
COUNT_CHUNKS: Final = f"""
SELECT count(*) FROM (SELECT FROM chunks WHERE live AND kb_id = ANY({VISIBLE_BASES}) {OF_CHUNKS} LIMIT $4) AS seen
"""

# Chunks stand before the vectors, so that a statement, new or cached, locks them in that order: dropping a space
# locks both for itself, and the other order would meet it in a deadlock.

# $4: the vector, $5: how many. Ordered by an expression that no index has, so that none can be used for it.
NEAREST_EXACT: Final = f"""
SELECT id, 1 - distance AS similarity, tier, valid_until
FROM chunks JOIN (
    SELECT chunk_id, embedding <=> $4 AS distance FROM "{{table}}" WHERE {VISIBLE_VECTORS}
    ORDER BY embedding <=> $4, chunk_id LIMIT $5)
    AS nearest ON id = chunk_id
"""

# The same for the HNSW index, $6: how many to take from it. It orders by half precision and, scanning
# iteratively, only roughly; what it gives is ordered again by the vectors themselves.
NEAREST_BY_INDEX: Final = f"""
SELECT id, 1 - distance AS similarity, tier, valid_until
FROM chunks JOIN (
    SELECT chunk_id, embedding <=> $4 AS distance FROM "{{table}}" WHERE {VISIBLE_VECTORS}
    ORDER BY embedding::halfvec({{dimensions}}) <=> $4::halfvec({{dimensions}}) LIMIT $6)
    AS roughly ON id = chunk_id
ORDER BY distance, id LIMIT $5
"""
# Without this the planner may sort all that is visible instead, which is what the index is there to avoid.
FORCE_INDEX: Final = "SET LOCAL enable_sort = off"

# $4: the question, $5: matches to aim at, $6: count no further than this. Gives the weights of its lexemes and two
# tsqueries as text, each NULL if it would be empty.
#
# The question is turned into lexemes, each quoted, so that nothing in it is read as an operator. One weighs its
# idf, ln(1 + (N - n + 0.5) / (n + 0.5)), where n of the N visible chunks hold it: of common ones the share of all
# chunks is known from ANALYZE's statistics, the others are counted.
#
# Any of them makes a match, which for common words is a third of all chunks. So in large bases matches are sought
# by the rarest lexemes, as many as promise $5 matches, and if these find too little by the first that is too
# common (it may be the only one that is found at all).
QUESTION: Final = rf"""
WITH known AS (
    SELECT lexeme, share
    FROM pg_stats, unnest(most_common_elems::text::text[], most_common_elem_freqs) AS u (lexeme, share)
    WHERE schemaname = current_schema AND tablename = 'chunks' AND attname = 'tsv' AND lexeme IS NOT NULL),
visible AS (
    SELECT coalesce(sum(chunk_count), 0)::float8 AS total FROM documents WHERE {OF_BASES}),
words AS (
    SELECT lexeme, '''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || '''' AS quoted
    FROM unnest(tsvector_to_array(keyword_lexemes($4))) AS lexeme),
found AS MATERIALIZED (
    SELECT lexeme, quoted, total, least(total, coalesce(share * total, (
        SELECT count(*)
        FROM (SELECT kind, kb_id FROM chunks WHERE live AND tsv @@ quoted::tsquery LIMIT $6) AS everywhere
        WHERE {OF_DOCUMENTS_ONLY}{IN_BASES}))) AS expected
    FROM visible CROSS JOIN words LEFT JOIN known USING (lexeme)),
ordered AS (
    SELECT lexeme, quoted, ln(1 + (total - expected + 0.5) / (expected + 0.5)) AS idf,
           expected, sum(expected) OVER (ORDER BY expected, lexeme) AS expected_so_far
    FROM found)
SELECT lexeme_weights(array_agg(lexeme), array_agg(idf)) AS weights,
       string_agg(quoted, ' | ') FILTER (WHERE expected_so_far <= $5) AS rare,
       string_agg(quoted, ' | ') FILTER (WHERE expected_so_far > $5 AND expected_so_far - expected <= $5) AS common
FROM ordered
"""

# $4: the weights of the question, $5: how many. Similarity is the BM25 score. OFFSET 0 keeps the steps apart: the
# planner would rather compute the score of every chunk before it looks whose it is.
BY_KEYWORDS_EXACT: Final = f"""
SELECT id, similarity, tier, valid_until
FROM (SELECT id, -(bm25 <#> $4) AS similarity, tier, valid_until FROM chunks WHERE {VISIBLE} OFFSET 0) AS mine
WHERE similarity > 0
ORDER BY similarity DESC, id LIMIT $5
"""

# $6: the rare part of the question, $7: rank at most so many of its matches, $8: the common part, asked only if
# the rare one finds less than $5, $9: as $7.
BY_KEYWORDS_BY_INDEX: Final = f"""
WITH rare AS MATERIALIZED (
    SELECT id, -(bm25 <#> $4) AS similarity, tier, valid_until FROM chunks
    WHERE tsv @@ $6::tsquery AND {VISIBLE} LIMIT $7)
SELECT * FROM rare
UNION
(SELECT id, -(bm25 <#> $4) AS similarity, tier, valid_until FROM chunks
 WHERE (SELECT count(*) FROM rare) < $5 AND tsv @@ $8::tsquery AND {VISIBLE} LIMIT $9)
ORDER BY similarity DESC, id LIMIT $5
"""

# $4: ids of chunks, $5: parts wanted on each side. They are of the same revision, so as visible as the chunk.
PASSAGES: Final = f"""
SELECT c.id, c.document_id, c.kb_id, d.filename, d.category, c.content, c.content_sha256, c.tier, c.metadata,
       (SELECT jsonb_agg(jsonb_build_array(ordinal, content, metadata) ORDER BY ordinal) FROM chunks
        WHERE $5 > 0 AND live AND kind = c.kind AND source_id = c.source_id AND revision = c.revision
          AND ordinal BETWEEN c.ordinal - $5 AND c.ordinal + $5) AS parts
FROM chunks AS c JOIN documents AS d ON d.id = c.document_id
WHERE c.id = ANY($4::uuid[]) AND c.live AND c.kind = 'document_chunk' AND c.kb_id = ANY({VISIBLE_BASES})
"""

# $3: the id of a channel. Ids of channels are each owner's own, so the caller may see several.
CHANNELS: Final = f"SELECT settings FROM channels WHERE {OWN_OR_TEAMS} AND id = $3"
