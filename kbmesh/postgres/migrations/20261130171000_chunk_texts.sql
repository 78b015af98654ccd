-- migrate:up

-- The embedder looks up whether an older revision of the same source has a text already.
CREATE INDEX chunks_texts ON chunks (source_id, content_sha256);

-- migrate:down

DROP INDEX chunks_texts;
