-- migrate:up

-- `old_secrets` sign beside `secret` for a day after `rotated_at`, the last that was replaced first. Nothing is sent
-- while `disabled_at` is set.
ALTER TABLE webhooks
    ADD COLUMN old_secrets bytea[] NOT NULL DEFAULT '{}',
    ADD COLUMN rotated_at  timestamptz,
    ADD COLUMN disabled_at timestamptz;

-- migrate:down

ALTER TABLE webhooks DROP COLUMN old_secrets, DROP COLUMN rotated_at, DROP COLUMN disabled_at;
