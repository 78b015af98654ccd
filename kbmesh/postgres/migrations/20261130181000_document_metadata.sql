-- migrate:up

-- What the caller notes on a document.
ALTER TABLE documents ADD COLUMN metadata jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object');

-- migrate:down

ALTER TABLE documents DROP COLUMN metadata;
