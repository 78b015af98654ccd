"""Senders beside one another, slow receivers, stops and deaths."""

import asyncio
from pathlib import Path

import httpx
import pytest

from kbmesh.postgres import Pool
from services.ingest.adapters.endpoints import HttpEndpoints
from services.ingest.entrypoints.http import Gateway
from services.ingest.handlers.delivering import DeliveryPolicy, WebhookSender
from tests.support.consuming import eventually
from tests.support.gateway import make_gateway
from tests.support.webhooks import (
    TIMEOUT_S,
    TOPICS,
    Receiver,
    create,
    create_kb,
    happened,
    log_of,
    receiving,
    sending,
    until_settled,
)


@pytest.fixture
def gateway(pool: Pool, store_dir: Path) -> Gateway:
    return make_gateway(pool, store_dir, TOPICS, allow_private=True)


async def test_two_senders_send_each_delivery_once(
    http: httpx.AsyncClient, gateway: Gateway, receiver: Receiver
) -> None:
    kb = await create_kb(http)
    webhook = await create(http, receiver.url)
    for _ in range(40):
        await gateway.webhooks.enqueue(happened(kb))

    async with sending(gateway), sending(gateway):
        await until_settled(http, webhook)

    assert len(receiver.received) == 40
    assert len({headers["webhook-id"] for headers, _ in receiver.received}) == 40


async def test_a_slow_endpoint_holds_up_only_itself(
    http: httpx.AsyncClient, gateway: Gateway, receiver: Receiver
) -> None:
    kb = await create_kb(http)
    async with receiving(hold=asyncio.Event()) as slow, sending(gateway, in_flight=2):
        await create(http, slow.url)
        fast = await create(http, receiver.url)
        for _ in range(10):
            await gateway.webhooks.enqueue(happened(kb))
        await until_settled(http, fast)
        assert len(slow.received) == 1
        assert slow.hold is not None
        slow.hold.set()
        await eventually(lambda: len(slow.received) == 10)


async def test_a_deleted_webhook_sends_nothing(
    http: httpx.AsyncClient, gateway: Gateway, receiver: Receiver
) -> None:
    kb = await create_kb(http)
    gone, stays = await create(http, f"{receiver.url}/gone"), await create(http, f"{receiver.url}/stays")
    await gateway.webhooks.enqueue(happened(kb))
    assert (await http.delete(f"/webhooks/{gone['id']}")).status_code == 204

    async with sending(gateway):
        await until_settled(http, stays)

    assert await gateway.webhooks.enqueue(happened(kb)) == 1
    assert len(receiver.received) == 1
    assert (await http.get(f"/webhooks/{gone['id']}")).status_code == 404


async def test_a_stop_waits_for_what_is_being_sent_and_the_rest_is_sent_later(
    http: httpx.AsyncClient, gateway: Gateway
) -> None:
    kb = await create_kb(http)
    async with receiving(hold=asyncio.Event()) as slow:
        assert slow.hold is not None
        webhook = await create(http, slow.url)
        for _ in range(3):
            await gateway.webhooks.enqueue(happened(kb))
        endpoints = HttpEndpoints(allow_private=True, timeout_s=5)
        sender = WebhookSender(
            gateway.webhooks, endpoints, DeliveryPolicy(gateway.webhook_key, (), 8, poll_s=0.02)
        )
        stop = asyncio.Event()
        task = asyncio.create_task(sender.run(stop))
        await eventually(lambda: len(slow.received) == 1)
        stop.set()
        slow.hold.set()
        await asyncio.wait_for(task, TIMEOUT_S)
        await endpoints.close()
        assert sorted(entry["status"] for entry in await log_of(http, webhook)) == [
            "delivered",
            "pending",
            "pending",
        ]

        async with sending(gateway):
            log = await until_settled(http, webhook)
        assert [entry["status"] for entry in log] == ["delivered"] * 3
        assert len(slow.received) == 3


async def test_an_attempt_that_died_is_made_again_when_its_lease_is_over(
    http: httpx.AsyncClient, gateway: Gateway, receiver: Receiver, pool: Pool
) -> None:
    webhook = await create(http, receiver.url)
    await gateway.webhooks.enqueue(happened(await create_kb(http)))
    [died] = await gateway.webhooks.claim(limit=5, busy=[], lease_s=60)
    assert await gateway.webhooks.claim(limit=5, busy=[], lease_s=60) == []
    path = f"/webhooks/{webhook['id']}/deliveries/{died.id}/redeliver"
    refused = await http.post(path)
    assert (refused.status_code, refused.json()["code"]) == (409, "delivery_under_way")

    await pool.execute("UPDATE webhook_deliveries SET due_at = now()")
    async with sending(gateway):
        [entry] = await until_settled(http, webhook)
    assert (entry["status"], entry["attempts"]) == ("delivered", 2)
    await gateway.webhooks.settle(died, response_code=None, error="late", retry_s=None)
    assert (await log_of(http, webhook))[0]["status"] == "delivered"
