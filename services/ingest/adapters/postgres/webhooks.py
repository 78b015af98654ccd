from collections.abc import Sequence
from typing import Final
from uuid import UUID, uuid4

import asyncpg

from kbmesh.auth import Principal
from kbmesh.postgres import Pool, connection, fetch_one, transaction
from kbmesh.postgres.access import OWN_OR_TEAMS, identity
from services.ingest.domain.webhooks import Delivery, DeliveryStatus, Due, EventStatus, StatusEvent, Webhook

KEEP: Final = "30 days"
ATTEMPT_S: Final = 60
"""No attempt takes longer; younger ones may be under way."""

OVERLAP: Final = "interval '24 hours'"
"""How long secrets sign on after the newest took their place."""
OLD_SECRETS: Final = 3
SIGNING: Final = f"(w.secret || CASE WHEN w.rotated_at > now() - {OVERLAP} THEN w.old_secrets ELSE '{{}}' END)"
"""Secrets of the webhook `w`, the newest first."""

MAY_SEE: Final = OWN_OR_TEAMS.replace("$1", "w.user_id").replace("$2::uuid[]", "w.teams")
"""The access predicate, for the user of the webhook `w`."""

ENQUEUE: Final = f"""
INSERT INTO webhook_deliveries (id, webhook_id, event_id, body)
SELECT gen_random_uuid(), w.id, $1, $2
FROM webhooks w JOIN knowledge_bases kb ON kb.id = $3
WHERE {MAY_SEE} AND (w.statuses = '{{}}' OR $4 = ANY(w.statuses)) AND (w.kb_ids = '{{}}' OR kb.id = ANY(w.kb_ids))
  AND w.created_at <= $5 AND w.disabled_at IS NULL
FOR KEY SHARE OF w
ON CONFLICT (webhook_id, event_id) DO NOTHING
RETURNING id"""

CLAIM: Final = f"""
UPDATE webhook_deliveries d
SET attempts = d.attempts + 1, attempted_at = now(), due_at = now() + make_interval(secs => $3)
FROM (
    SELECT w.endpoint, next.id,
           {SIGNING} AS secrets
    FROM webhooks w CROSS JOIN LATERAL (
        SELECT id, due_at FROM webhook_deliveries
        WHERE webhook_id = w.id AND status = 'pending' AND due_at <= now()
        ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED
    ) next
    WHERE w.id <> ALL($1::uuid[]) AND w.disabled_at IS NULL
    ORDER BY next.due_at LIMIT $2
) claimed
WHERE d.id = claimed.id
RETURNING d.id, d.webhook_id, claimed.endpoint, claimed.secrets, d.body, d.attempts"""


ROTATE: Final = f"""
UPDATE webhooks w
SET secret = $3, rotated_at = now(),
    old_secrets = {SIGNING}[:{OLD_SECRETS}]
WHERE user_id = $1 AND id = $2 RETURNING *"""


class PostgresWebhooks:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def create(
        self,
        principal: Principal,
        endpoint: str,
        secret: bytes,
        statuses: Sequence[EventStatus],
        kb_ids: Sequence[UUID],
        *,
        limit: int,
    ) -> Webhook | None:
        user_id, teams = identity(principal)
        async with connection(self._pool) as conn:
            row = await conn.fetchrow(
                """INSERT INTO webhooks (id, user_id, teams, endpoint, secret, statuses, kb_ids)
                   SELECT $1, $2, $3, $4, $5, $6, $7 WHERE (SELECT count(*) FROM webhooks WHERE user_id = $2) < $8
                   RETURNING *""",
                *(uuid4(), user_id, teams, endpoint, secret, statuses, kb_ids, limit),
            )
        return None if row is None else _webhook(row)

    async def mine(self, principal: Principal) -> list[Webhook]:
        async with connection(self._pool) as conn:
            rows = await conn.fetch(
                "SELECT * FROM webhooks WHERE user_id = $1 ORDER BY created_at, id", principal.sub
            )
        return [_webhook(row) for row in rows]

    async def find(self, principal: Principal, webhook_id: UUID) -> Webhook | None:
        async with connection(self._pool) as conn:
            row = await conn.fetchrow(
                "SELECT * FROM webhooks WHERE user_id = $1 AND id = $2", principal.sub, webhook_id
            )
        return None if row is None else _webhook(row)

    async def delete(self, principal: Principal, webhook_id: UUID) -> bool:
        async with connection(self._pool) as conn:
            deleted = await conn.fetchval(
                "DELETE FROM webhooks WHERE user_id = $1 AND id = $2 RETURNING id", principal.sub, webhook_id
            )
        return deleted is not None

    async def rotate(self, principal: Principal, webhook_id: UUID, secret: bytes) -> Webhook | None:
        async with connection(self._pool) as conn:
            row = await conn.fetchrow(ROTATE, principal.sub, webhook_id, secret)
        return None if row is None else _webhook(row)

    async def disable(self, webhook_id: UUID) -> None:
        async with connection(self._pool) as conn:
            await conn.execute("UPDATE webhooks SET disabled_at = now() WHERE id = $1", webhook_id)

    async def enable(self, principal: Principal, webhook_id: UUID) -> Webhook | None:
        async with connection(self._pool) as conn:
            row = await conn.fetchrow(
                "UPDATE webhooks SET disabled_at = NULL WHERE user_id = $1 AND id = $2 RETURNING *",
                *(principal.sub, webhook_id),
            )
        return None if row is None else _webhook(row)

    async def deliveries(
        self, principal: Principal, webhook_id: UUID, *, before: UUID | None, limit: int
    ) -> list[Delivery]:
        async with connection(self._pool) as conn:
            rows = await conn.fetch(
                """SELECT d.* FROM webhook_deliveries d JOIN webhooks w ON w.id = d.webhook_id
                   WHERE w.user_id = $1 AND w.id = $2
                     AND ($3::uuid IS NULL OR (d.created_at, d.id) <
                          (SELECT last.created_at, last.id FROM webhook_deliveries last WHERE last.id = $3))
                   ORDER BY d.created_at DESC, d.id DESC LIMIT $4""",
                *(principal.sub, webhook_id, before, limit),
            )
        return [_delivery(row) for row in rows]

    async def redeliver(
        self, principal: Principal, webhook_id: UUID, delivery_id: UUID
    ) -> tuple[Delivery, bool] | None:
        async with transaction(self._pool) as conn:
            row = await conn.fetchrow(
                """SELECT d.*, d.status = 'pending' AND d.attempted_at > now() - make_interval(secs => $4) AS busy
                   FROM webhook_deliveries d JOIN webhooks w ON w.id = d.webhook_id
                   WHERE w.user_id = $1 AND w.id = $2 AND d.id = $3 FOR UPDATE OF d""",
                *(principal.sub, webhook_id, delivery_id, ATTEMPT_S),
            )
            if row is None:
                return None
            if row["busy"]:
                return _delivery(row), False
            row = await fetch_one(
                conn,
                """UPDATE webhook_deliveries SET status = 'pending', attempts = 0, due_at = now()
                   WHERE id = $1 RETURNING *""",
                delivery_id,
            )
        return _delivery(row), True

    async def enqueue(self, event: StatusEvent) -> int:
        async with connection(self._pool) as conn:
            rows = await conn.fetch(ENQUEUE, *(event.id, event.body, event.kb_id, event.status, event.occurred_at))
        return len(rows)

    async def claim(self, *, limit: int, busy: Sequence[UUID], lease_s: float) -> list[Due]:
        async with connection(self._pool) as conn:
            rows = await conn.fetch(CLAIM, busy, limit, lease_s)
        return [Due(**{**row, "secrets": tuple(row["secrets"])}) for row in rows]

    async def settle(
        self, due: Due, *, response_code: int | None, error: str | None, retry_s: float | None
    ) -> None:
        if error is None:
            status = DeliveryStatus.DELIVERED
        else:
            status = DeliveryStatus.FAILED if retry_s is None else DeliveryStatus.PENDING
        async with connection(self._pool) as conn:
            await conn.execute(
                """UPDATE webhook_deliveries
                   SET status = $3, response_code = $4, error = $5, due_at = now() + make_interval(secs => $6)
                   WHERE id = $1 AND attempts = $2 AND status = 'pending'""",
                *(due.id, due.attempts, status, response_code, error, retry_s or 0),
            )

    async def purge(self) -> None:
        async with connection(self._pool) as conn:
            await conn.execute(
                f"""DELETE FROM webhook_deliveries
                    WHERE status <> 'pending' AND created_at < now() - interval '{KEEP}'"""
            )
            await conn.execute(
                f"""UPDATE webhooks SET old_secrets = '{{}}'
                    WHERE old_secrets <> '{{}}' AND rotated_at <= now() - {OVERLAP}"""
            )


def _webhook(row: asyncpg.Record) -> Webhook:
    return Webhook(
        id=row["id"],
        endpoint=row["endpoint"],
        statuses=tuple(EventStatus(status) for status in row["statuses"]),
        kb_ids=tuple(row["kb_ids"]),
        created_at=row["created_at"],
        rotated_at=row["rotated_at"],
        disabled_at=row["disabled_at"],
    )


def _delivery(row: asyncpg.Record) -> Delivery:
    plain = (
        "id",
        "event_id",
        "attempts",
        "due_at",
        "attempted_at",
        "response_code",
        "error",
        "created_at",
        "body",
    )
    return Delivery(**{field: row[field] for field in plain}, status=DeliveryStatus(row["status"]))
