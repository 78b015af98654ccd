-- migrate:up

CREATE EXTENSION IF NOT EXISTS vector;

CREATE TABLE knowledge_bases (
    id          uuid PRIMARY KEY,
    owner_type  text NOT NULL CHECK (owner_type IN ('user', 'team')),
    owner_id    uuid NOT NULL,
    name        text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    description text NOT NULL DEFAULT '' CHECK (char_length(description) <= 2000),
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX knowledge_bases_owner ON knowledge_bases (owner_type, owner_id, created_at, id);

-- One row per document, whatever its number of revisions. `revision` is the newest that was accepted,
-- `live_revision` the one that search sees; a write for any other revision is refused (version fence).
CREATE TABLE documents (
    id              uuid PRIMARY KEY,
    kb_id           uuid NOT NULL REFERENCES knowledge_bases ON DELETE CASCADE,
    filename        text NOT NULL CHECK (char_length(filename) BETWEEN 1 AND 255),
    content_type    text NOT NULL,
    category        text NOT NULL
        CHECK (category IN ('strategy', 'data_dictionary', 'governance_policy', 'architecture', 'other')),
    size_bytes      bigint NOT NULL CHECK (size_bytes > 0),
    content_sha256  bytea NOT NULL CHECK (octet_length(content_sha256) = 32),
    storage_key     text NOT NULL UNIQUE,
    uploader        uuid NOT NULL,
    source_priority text CHECK (source_priority IN
        ('CustomerFact', 'PlatformBestPractice', 'IndustryBenchmark', 'AdvisoryGuidance')),
    status          text NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'processing', 'embedding', 'ready', 'empty', 'failed')),
    error_code      text,
    error_detail    text,
    revision        bigint NOT NULL DEFAULT 1 CHECK (revision > 0),
    live_revision   bigint CHECK (live_revision <= revision),
    chunk_count     integer NOT NULL DEFAULT 0,
    embedded_count  integer NOT NULL DEFAULT 0 CHECK (embedded_count <= chunk_count),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE (kb_id, filename),
    CHECK ((status = 'failed') = (error_code IS NOT NULL))
);
CREATE INDEX documents_listing ON documents (kb_id, created_at, id);

-- The same fence for rows of every other kind. A deleted record keeps its row, so that an older
-- upsert that arrives late does not bring it back.
CREATE TABLE records (
    kind           text NOT NULL,
    source_id      text NOT NULL CHECK (char_length(source_id) BETWEEN 1 AND 512),
    revision       bigint NOT NULL,
    live_revision  bigint CHECK (live_revision <= revision),
    content_sha256 bytea NOT NULL CHECK (octet_length(content_sha256) = 32),
    chunk_count    integer NOT NULL DEFAULT 0,
    embedded_count integer NOT NULL DEFAULT 0 CHECK (embedded_count <= chunk_count),
    deleted_at     timestamptz,
    updated_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, source_id)
);

CREATE TABLE chunks (
    id             uuid PRIMARY KEY,
    kind           text NOT NULL,
    source_id      text NOT NULL,
    kb_id          uuid REFERENCES knowledge_bases ON DELETE CASCADE,
    document_id    uuid REFERENCES documents ON DELETE CASCADE,
    revision       bigint NOT NULL,
    ordinal        integer NOT NULL,
    content        text NOT NULL,
    content_sha256 bytea NOT NULL CHECK (octet_length(content_sha256) = 32),
    token_count    integer NOT NULL CHECK (token_count > 0),
    metadata       jsonb NOT NULL DEFAULT '{}',
    tier           text NOT NULL CHECK (tier IN
        ('CustomerFact', 'PlatformBestPractice', 'IndustryBenchmark', 'AdvisoryGuidance')),
    valid_until    timestamptz,
    live           boolean NOT NULL,
    tsv            tsvector NOT NULL GENERATED ALWAYS AS (to_tsvector('english', content)) STORED,
    bm25           sparsevec,
    UNIQUE (kind, source_id, revision, ordinal),
    CHECK ((kind = 'document_chunk') = (document_id IS NOT NULL)),
    CHECK ((document_id IS NULL) = (kb_id IS NULL))
);
CREATE INDEX chunks_document ON chunks (document_id);
CREATE INDEX chunks_kb ON chunks (kb_id) WHERE live;
CREATE INDEX chunks_tsv ON chunks USING gin (tsv) WHERE live;

-- A space is one model at one dimension, with a vector table of its own (vectors_<id>), which the
-- embedder creates. Search uses the active one.
CREATE TABLE embedding_spaces (
    id         text PRIMARY KEY CHECK (id ~ '^[a-z][a-z0-9_]{0,47}$'),
    model      text NOT NULL,
    dimensions integer NOT NULL CHECK (dimensions BETWEEN 1 AND 4000),
    status     text NOT NULL CHECK (status IN ('building', 'active', 'retired')),
    table_name text NOT NULL UNIQUE CHECK (table_name = 'vectors_' || id),
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX embedding_spaces_one_active ON embedding_spaces (status) WHERE status = 'active';

CREATE TABLE outbox (
    id           bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    topic        text NOT NULL,
    key          text NOT NULL,
    headers      jsonb NOT NULL,
    payload      bytea NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz
);
CREATE INDEX outbox_unpublished ON outbox (id) WHERE published_at IS NULL;
CREATE INDEX outbox_published ON outbox (published_at) WHERE published_at IS NOT NULL;

CREATE FUNCTION notify_outbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('kbmesh_outbox', '');
    RETURN NULL;
END
$$;
CREATE TRIGGER outbox_notify AFTER INSERT ON outbox
    FOR EACH STATEMENT EXECUTE FUNCTION notify_outbox();

CREATE TABLE skills (
    id          uuid PRIMARY KEY,
    owner_type  text CHECK (owner_type IN ('user', 'team')),
    owner_id    uuid,
    name        text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    description text NOT NULL,
    origin      text NOT NULL DEFAULT 'local',
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    CHECK ((owner_type IS NULL) = (owner_id IS NULL))
);

CREATE TABLE skill_versions (
    skill_id   uuid NOT NULL REFERENCES skills ON DELETE CASCADE,
    version    integer NOT NULL CHECK (version > 0),
    goal       text NOT NULL,
    template   text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (skill_id, version)
);

CREATE TABLE channels (
    id         text PRIMARY KEY CHECK (char_length(id) BETWEEN 1 AND 200),
    settings   jsonb NOT NULL DEFAULT '{"kb_ids": []}',
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE webhooks (
    id         uuid PRIMARY KEY,
    owner_id   uuid NOT NULL,
    endpoint   text NOT NULL,
    secret     bytea NOT NULL,
    filter     jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE webhook_deliveries (
    id            uuid PRIMARY KEY,
    webhook_id    uuid NOT NULL REFERENCES webhooks ON DELETE CASCADE,
    event_id      text NOT NULL,
    attempt       integer NOT NULL CHECK (attempt > 0),
    response_code integer,
    attempted_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX webhook_deliveries_webhook ON webhook_deliveries (webhook_id, attempted_at);

-- migrate:down

DROP TABLE webhook_deliveries, webhooks, channels, skill_versions, skills, outbox, embedding_spaces,
    chunks, records, documents, knowledge_bases;
DROP FUNCTION notify_outbox;
DROP EXTENSION vector;
