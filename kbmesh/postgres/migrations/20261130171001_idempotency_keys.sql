-- migrate:up

-- What an upload was answered, so that its repetition under the same key gets the same answer for a day.
CREATE TABLE idempotency_keys (
    caller      uuid NOT NULL,
    key         text NOT NULL CHECK (char_length(key) BETWEEN 1 AND 255),
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    document_id uuid NOT NULL,
    revision    bigint NOT NULL,
    changed     boolean NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (caller, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- migrate:down

DROP TABLE idempotency_keys;
