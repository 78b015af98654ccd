-- migrate:up

-- What the embedding model reads ahead of the content: file, category, headings. No part of what is searched or shown.
ALTER TABLE chunks ADD COLUMN header text NOT NULL DEFAULT '';

-- migrate:down

ALTER TABLE chunks DROP COLUMN header;
