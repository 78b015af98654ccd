-- migrate:up

-- The words of texts and questions. All punctuation parts words, so that each part of cust_ltv_v2, ORA-00942 or
-- data/report.csv is found by itself, in its English stem; what - _ or . join is one word more. (PostgreSQL's parser
-- makes a number of -00942 and no more than one word of report.csv, and takes typographic quotes for letters where the
-- locale is C.)
CREATE FUNCTION keyword_lexemes(content text) RETURNS tsvector LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (
    SELECT to_tsvector('pg_catalog.english', translate(spaced, '-_.', '   ')) || array_to_tsvector(ARRAY(
        SELECT joined[1]
        FROM unnest(ARRAY['[^\s._-]+(?:[_-]+[^\s._-]+)+', '[^\s._-]+(?:[._-]+[^\s._-]+)+']) AS pattern,
            regexp_matches(lower(spaced), pattern, 'g') AS joined
        WHERE char_length(joined[1]) <= 255))
    FROM regexp_replace(content, '[!-,/:-@[-^`{-~\u00a0-\u00bf\u2000-\u206f\u3000-\u303f]+', ' ', 'g') AS spaced);

-- A dimension for each lexeme, by hash: among a billion, two words that meet in one are a rarity.
CREATE FUNCTION lexeme_weights(lexemes text[], weights float8[]) RETURNS sparsevec
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (
    SELECT ('{' || string_agg(dimension || ':' || weight, ',') || '}/1000000000')::sparsevec
    FROM (
        SELECT (hashtextextended(lexeme, 0) & x'7fffffffffffffff'::bigint) % 1000000000 + 1 AS dimension,
            sum(weight)::real AS weight
        FROM unnest(lexemes, weights) AS w (lexeme, weight)
        GROUP BY dimension) AS weighed);

-- What each word of a text adds to its BM25 score, but for the idf, which is the question's part:
-- tf (k1 + 1) / (tf + k1 (1 - b + b length / average)), k1 = 1.2, b = 0.75 (Robertson and Zaragoza 2009). NULL without
-- words. The average is a constant, so that a chunk need not change when others come and go.
CREATE FUNCTION bm25_weights(words tsvector) RETURNS sparsevec LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (
    SELECT lexeme_weights(array_agg(lexeme), array_agg(tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / 100))))
    FROM (
        SELECT lexeme, tf, sum(tf) OVER () AS length
        FROM (SELECT lexeme, coalesce(cardinality(positions), 1)::float8 AS tf FROM unnest(words)) AS counted) AS terms);

-- Rewrites the table, and so fills both. `bm25` stays in the row, where scores are computed without unpacking anything.
ALTER TABLE chunks DROP COLUMN tsv, DROP COLUMN bm25;
ALTER TABLE chunks
    ADD COLUMN tsv tsvector NOT NULL GENERATED ALWAYS AS (keyword_lexemes(content)) STORED,
    ADD COLUMN bm25 sparsevec STORAGE MAIN GENERATED ALWAYS AS (bm25_weights(keyword_lexemes(content))) STORED;
CREATE INDEX chunks_tsv ON chunks USING gin (tsv) WHERE live;
-- Search knows from it how common words are, and autovacuum only sees to it once rows have changed.
ANALYZE chunks;

-- migrate:down

ALTER TABLE chunks DROP COLUMN tsv, DROP COLUMN bm25;
ALTER TABLE chunks
    ADD COLUMN tsv tsvector NOT NULL GENERATED ALWAYS AS (to_tsvector('english', content)) STORED,
    ADD COLUMN bm25 sparsevec;
CREATE INDEX chunks_tsv ON chunks USING gin (tsv) WHERE live;
ANALYZE chunks;
DROP FUNCTION bm25_weights;
DROP FUNCTION lexeme_weights;
DROP FUNCTION keyword_lexemes;
