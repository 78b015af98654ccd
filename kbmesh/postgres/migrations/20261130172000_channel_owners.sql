-- migrate:up

-- Each owner has channel ids of its own: a stranger who uses the same id meets nothing of this one.
ALTER TABLE channels
    ADD COLUMN owner_type text NOT NULL CHECK (owner_type IN ('user', 'team')),
    ADD COLUMN owner_id uuid NOT NULL,
    DROP CONSTRAINT channels_pkey,
    ADD PRIMARY KEY (owner_type, owner_id, id);

-- migrate:down

-- Without owners one id would stand for the channels of several.
DELETE FROM channels;
ALTER TABLE channels
    DROP CONSTRAINT channels_pkey,
    ADD PRIMARY KEY (id),
    DROP COLUMN owner_type,
    DROP COLUMN owner_id;
