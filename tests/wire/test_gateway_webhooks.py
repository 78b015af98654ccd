"""The routes of webhooks."""

import base64
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from kbmesh.postgres import Pool
from services.ingest.entrypoints.http import Gateway
from tests.support.gateway import BOB, bearer, client_of, make_gateway
from tests.support.webhooks import TOPICS, create, create_kb, happened, log_of


@pytest.fixture
def gateway(pool: Pool, store_dir: Path) -> Gateway:
    return make_gateway(pool, store_dir, TOPICS, allow_private=True)


async def test_the_secret_is_shown_once_and_not_what_the_database_holds(
    http: httpx.AsyncClient, pool: Pool
) -> None:
    webhook = await create(http, "http://127.0.0.1:1/")
    stored = await pool.fetchval("SELECT secret FROM webhooks")
    assert base64.b64decode(webhook["secret"].removeprefix("whsec_")) != stored
    shown = (await http.get(f"/webhooks/{webhook['id']}")).json()
    assert shown == {name: value for name, value in webhook.items() if name != "secret"}
    assert (await http.get("/webhooks")).json() == {"items": [shown]}


async def test_someone_elses_webhook_is_as_a_missing_one(http: httpx.AsyncClient, gateway: Gateway) -> None:
    kb = await create_kb(http)
    webhook = await create(http, "http://127.0.0.1:1/")
    await gateway.webhooks.enqueue(happened(kb))
    [entry] = await log_of(http, webhook)
    http.headers.update(bearer(BOB, roles=("admin",)))

    assert (await http.get("/webhooks")).json() == {"items": []}
    for target in (webhook["id"], str(uuid4())):
        for method, path, code in (
            ("GET", "", "webhook_not_found"),
            ("DELETE", "", "webhook_not_found"),
            ("POST", "/rotate", "webhook_not_found"),
            ("POST", "/enable", "webhook_not_found"),
            ("GET", "/deliveries", "webhook_not_found"),
            ("POST", f"/deliveries/{entry['id']}/redeliver", "delivery_not_found"),
        ):
            answer = await http.request(method, f"/webhooks/{target}{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, code)
    theirs = await http.post("/webhooks", json={"endpoint": "http://127.0.0.1:1/", "kb_ids": [str(kb)]})
    assert (theirs.status_code, theirs.json()["code"]) == (404, "knowledge_base_not_found")


async def test_bad_webhooks_are_refused_with_a_code(http: httpx.AsyncClient, pool: Pool, tmp_path: Path) -> None:
    for body in ({}, {"endpoint": "http://a b/"}, {"endpoint": "http://127.0.0.1:1/", "events": ["eaten"]}):
        assert (await http.post("/webhooks", json=body)).json()["code"] == "invalid_request"
    for _ in range(3):
        await create(http, "http://127.0.0.1:1/")
    answer = await http.post("/webhooks", json={"endpoint": "http://127.0.0.1:1/"})
    assert (answer.status_code, answer.json()["code"]) == (409, "too_many_webhooks")

    async with client_of(make_gateway(pool, tmp_path / "store", TOPICS)) as strict:
        answer = await strict.post("/webhooks", json={"endpoint": "https://localhost/"}, headers=bearer(BOB))
        assert (answer.status_code, answer.json()["code"]) == (400, "endpoint_refused")


async def test_the_log_is_paged_newest_first_and_old_entries_are_forgotten(
    http: httpx.AsyncClient, gateway: Gateway, pool: Pool
) -> None:
    kb = await create_kb(http)
    webhook = await create(http, "http://127.0.0.1:1/")
    events = [happened(kb) for _ in range(3)]
    for event in events:
        await gateway.webhooks.enqueue(event)
    path = f"/webhooks/{webhook['id']}/deliveries"
    first = (await http.get(path, params={"limit": 2})).json()
    second = (await http.get(path, params={"limit": 2, "before": first["next_before"]})).json()
    found = [item["event_id"] for page in (first, second) for item in page["items"]]
    assert found == [event.id for event in reversed(events)]
    assert second["next_before"] is None

    await pool.execute("UPDATE webhook_deliveries SET created_at = now() - interval '31 days'")
    await pool.execute("UPDATE webhook_deliveries SET status = 'delivered' WHERE event_id = $1", events[0].id)
    await gateway.webhooks.purge()
    assert len(await log_of(http, webhook)) == 2
