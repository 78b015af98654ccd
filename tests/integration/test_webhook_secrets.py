"""Secrets that are replaced, endpoints that are gone, and attempts whose outcome was lost."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from kbmesh.postgres import Pool
from services.ingest.adapters.postgres import PostgresWebhooks
from services.ingest.entrypoints.http import Gateway
from tests.support.consuming import eventually
from tests.support.gateway import make_gateway
from tests.support.webhooks import (
    TOPICS,
    Receiver,
    create,
    create_kb,
    happened,
    log_of,
    sending,
    until_settled,
    verify,
)


@pytest.fixture
def gateway(pool: Pool, store_dir: Path) -> Gateway:
    return make_gateway(pool, store_dir, TOPICS, allow_private=True)


async def rotate(http: httpx.AsyncClient, webhook: dict[str, Any]) -> str:
    """The new secret."""
    answer = await http.post(f"/webhooks/{webhook['id']}/rotate")
    assert answer.status_code == 200, answer.text
    secret: str = answer.json()["secret"]
    return secret


async def test_after_a_rotation_old_and_new_secrets_verify_for_a_day(
    http: httpx.AsyncClient, gateway: Gateway, receiver: Receiver, pool: Pool
) -> None:
    kb = await create_kb(http)
    webhook = await create(http, receiver.url)
    secrets = [webhook["secret"], await rotate(http, webhook), await rotate(http, webhook)]
    assert len(set(secrets)) == 3

    async with sending(gateway):
        await gateway.webhooks.enqueue(happened(kb))
        await until_settled(http, webhook)
        await pool.execute("UPDATE webhooks SET rotated_at = now() - interval '24 hours'")
        await gateway.webhooks.enqueue(happened(kb))
        await until_settled(http, webhook)

    first, second = receiver.received
    for secret in secrets:
        verify(secret, *first, signatures=3)
    verify(secrets[-1], *second)
    await gateway.webhooks.purge()
    assert await pool.fetchval("SELECT old_secrets FROM webhooks") == []
    assert (await http.get(f"/webhooks/{webhook['id']}")).json()["rotated_at"] is not None


async def test_secrets_that_were_replaced_are_few(http: httpx.AsyncClient, pool: Pool) -> None:
    webhook = await create(http, "http://127.0.0.1:1/")
    for _ in range(5):
        await rotate(http, webhook)
    assert await pool.fetchval("SELECT cardinality(old_secrets) FROM webhooks") == 3


async def test_an_endpoint_that_is_gone_gets_nothing_more_until_it_is_enabled(
    http: httpx.AsyncClient, gateway: Gateway, receiver: Receiver
) -> None:
    kb = await create_kb(http)
    receiver.answers = [410]
    webhook = await create(http, receiver.url)
    for _ in range(2):
        await gateway.webhooks.enqueue(happened(kb))

    async with sending(gateway):

        async def disabled() -> bool:
            return (await http.get(f"/webhooks/{webhook['id']}")).json()["disabled_at"] is not None

        async with asyncio.timeout(20):
            while not await disabled() or (await log_of(http, webhook))[-1]["status"] == "pending":
                await asyncio.sleep(0.01)
        assert await gateway.webhooks.enqueue(happened(kb)) == 0
        assert await gateway.webhooks.claim(limit=5, busy=[], lease_s=60) == []
        waiting, gone = await log_of(http, webhook)
        assert (gone["status"], gone["attempts"], gone["response_code"]) == ("failed", 1, 410)
        assert gone["error"] == "endpoint_gone"
        assert waiting["status"] == "pending"

        enabled = await http.post(f"/webhooks/{webhook['id']}/enable")
        assert (enabled.status_code, enabled.json()["disabled_at"]) == (200, None)
        log = await until_settled(http, webhook)

    assert [entry["status"] for entry in log] == ["delivered", "failed"]
    assert len(receiver.received) == 2


async def test_an_attempt_that_is_lost_unexpectedly_leaves_its_traceback(
    http: httpx.AsyncClient, gateway: Gateway, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise LookupError("not foreseen")

    monkeypatch.setattr(PostgresWebhooks, "settle", broken)
    await create(http, receiver.url)
    await gateway.webhooks.enqueue(happened(await create_kb(http)))
    with capture_logs() as lines:
        async with sending(gateway):
            await eventually(lambda: any(line["event"] == "webhook_attempt_lost" for line in lines))
    [lost] = [line for line in lines if line["event"] == "webhook_attempt_lost"]
    assert (lost["error"], lost["exc_info"], lost["log_level"]) == ("LookupError", True, "error")
