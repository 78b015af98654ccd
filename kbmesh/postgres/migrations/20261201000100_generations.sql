-- migrate:up

-- Whole kinds of records that replace one another. `newest` is the highest generation heard of, by a record or a seal;
-- `record_count` is how many records its seal says that it has, NULL before; `live` is the one that search sees, 0: none.
-- Whoever writes records of a kind locks its row first.
CREATE TABLE generations (
    kind         text PRIMARY KEY,
    newest       bigint NOT NULL CHECK (newest > 0),
    record_count integer CHECK (record_count >= 0),
    live         bigint DEFAULT 0 NOT NULL CHECK (live <= newest)
);

-- The generation that a record came with last; 0: none. While it is higher than the live one of the kind, the newest
-- revision of the record waits for the whole generation.
ALTER TABLE records ADD COLUMN generation bigint DEFAULT 0 NOT NULL;

-- Makes the newest generation of a kind the live one if all of it is there, stored and embedded (where search sees
-- nothing of the kind, stored is enough), and removes every record that is not of it. Ingest and the embedder call it
-- whenever they may have brought the last that was missing. What was deleted since it came counts as there.
CREATE FUNCTION complete_generation(of_kind text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    this generations;
    vectors text;
BEGIN
    SELECT * INTO this FROM generations WHERE kind = of_kind FOR UPDATE;
    IF NOT FOUND OR this.record_count IS NULL OR this.newest = this.live THEN
        RETURN false;
    END IF;
    IF this.record_count > (SELECT count(*) FROM records WHERE kind = of_kind AND generation = this.newest) THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM records
               WHERE kind = of_kind AND generation = this.newest AND embedded_count < chunk_count)
       AND EXISTS (SELECT FROM records WHERE kind = of_kind AND live_revision IS NOT NULL) THEN
        RETURN false;
    END IF;

    PERFORM FROM records WHERE kind = of_kind ORDER BY source_id FOR UPDATE;
    DELETE FROM chunks c USING records r
    WHERE r.kind = of_kind AND (c.kind, c.source_id) = (r.kind, r.source_id)
      AND (r.generation <> this.newest OR c.revision <> r.revision);
    UPDATE records
    SET live_revision = NULL, content_sha256 = decode(repeat('00', 32), 'hex'), chunk_count = 0, embedded_count = 0,
        deleted_at = now(), updated_at = now()
    WHERE kind = of_kind AND generation <> this.newest AND deleted_at IS NULL;
    UPDATE records SET live_revision = revision, updated_at = now()
    WHERE kind = of_kind AND generation = this.newest AND deleted_at IS NULL
      AND live_revision IS DISTINCT FROM revision;
    UPDATE chunks SET live = true WHERE kind = of_kind AND NOT live;
    FOR vectors IN SELECT table_name FROM embedding_spaces LOOP
        EXECUTE format('UPDATE %I v SET live = true FROM chunks c
                        WHERE c.kind = $1 AND v.chunk_id = c.id AND NOT v.live', vectors) USING of_kind;
    END LOOP;
    UPDATE generations SET live = newest WHERE kind = of_kind;
    RETURN true;
END
$$;

-- migrate:down

DROP FUNCTION complete_generation;
ALTER TABLE records DROP COLUMN generation;
DROP TABLE generations;
