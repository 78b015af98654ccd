-- migrate:up

-- Both were laid out before they had code, and have been empty.
DROP TABLE webhook_deliveries, webhooks;

-- `teams` are those of the user when the webhook was made: membership is known from tokens alone. An empty
-- `statuses` or `kb_ids` means all. `secret` signs, combined with the key of the settings if there is one.
CREATE TABLE webhooks (
    id         uuid PRIMARY KEY,
    user_id    uuid NOT NULL,
    teams      uuid[] NOT NULL,
    endpoint   text NOT NULL CHECK (char_length(endpoint) BETWEEN 1 AND 2000),
    secret     bytea NOT NULL CHECK (octet_length(secret) = 32),
    statuses   text[] NOT NULL,
    kb_ids     uuid[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX webhooks_user ON webhooks (user_id, created_at, id);

-- `due_at` of a pending one is also a lease: whoever sends it moves it on first.
CREATE TABLE webhook_deliveries (
    id            uuid PRIMARY KEY,
    webhook_id    uuid NOT NULL REFERENCES webhooks ON DELETE CASCADE,
    event_id      text NOT NULL,
    body          text NOT NULL,
    status        text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'delivered', 'failed')),
    attempts      integer NOT NULL DEFAULT 0,
    due_at        timestamptz NOT NULL DEFAULT now(),
    attempted_at  timestamptz,
    response_code integer,
    error         text,
    created_at    timestamptz NOT NULL DEFAULT now(),
    UNIQUE (webhook_id, event_id)
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, due_at) WHERE status = 'pending';
CREATE INDEX webhook_deliveries_log ON webhook_deliveries (webhook_id, created_at, id);

-- migrate:down

DROP TABLE webhook_deliveries, webhooks;

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
