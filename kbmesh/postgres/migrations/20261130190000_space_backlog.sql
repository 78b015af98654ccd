-- migrate:up

-- A space is seeded once every chunk that was there before it has a vector or stands in its backlog, and indexed once
-- the backlog was worked off for the first time. `probe` is what its model makes of a fixed sentence.
ALTER TABLE embedding_spaces
    ADD COLUMN seeded_to    uuid,
    ADD COLUMN seeded       boolean DEFAULT false NOT NULL,
    ADD COLUMN indexed      boolean DEFAULT false NOT NULL,
    ADD COLUMN activated_at timestamptz,
    ADD COLUMN retired_at   timestamptz,
    ADD COLUMN probe        real[];
UPDATE embedding_spaces SET seeded = true, indexed = true, activated_at = created_at;

-- Chunks that a space other than the active one still lacks.
CREATE TABLE space_backlog (
    space_id     text NOT NULL REFERENCES embedding_spaces ON DELETE CASCADE,
    chunk_id     uuid NOT NULL REFERENCES chunks ON DELETE CASCADE,
    leased_until timestamptz DEFAULT '-infinity' NOT NULL,
    failures     smallint DEFAULT 0 NOT NULL,
    PRIMARY KEY (space_id, chunk_id)
);
CREATE INDEX space_backlog_chunk ON space_backlog (chunk_id);

-- migrate:down

DROP TABLE space_backlog;
ALTER TABLE embedding_spaces
    DROP COLUMN seeded_to, DROP COLUMN seeded, DROP COLUMN indexed, DROP COLUMN activated_at, DROP COLUMN retired_at,
    DROP COLUMN probe;
