-- migrate:up

-- The personal knowledge base that clients use who name none: at most one for each user.
ALTER TABLE knowledge_bases
    ADD COLUMN is_default boolean NOT NULL DEFAULT false,
    ADD CHECK (owner_type = 'user' OR NOT is_default);
CREATE UNIQUE INDEX knowledge_bases_default ON knowledge_bases (owner_id) WHERE is_default;

-- migrate:down

ALTER TABLE knowledge_bases DROP COLUMN is_default;
