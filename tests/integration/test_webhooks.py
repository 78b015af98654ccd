"""Which events reach a webhook, over the real database, with real receivers of their own."""

import json
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import pytest

from kbmesh.http import HttpSettings
from kbmesh.messaging import KafkaSettings
from kbmesh.postgres import Pool, PostgresSettings
from kbmesh.rpc import GrpcSettings
from services.ingest.adapters.endpoints import HttpEndpoints
from services.ingest.adapters.postgres import PostgresDocuments
from services.ingest.bootstrap import bootstrap
from services.ingest.domain.webhooks import EventStatus
from services.ingest.entrypoints.http import Gateway
from services.ingest.handlers.delivering import DeliveryPolicy, WebhookSender
from services.ingest.settings import IngestSettings, Role, StoreSettings, WebhooksSettings
from tests.support.consuming import eventually, running
from tests.support.gateway import ALICE, AUTH, BOB, TEAM, bearer, make_gateway
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


async def test_a_delivery_is_repeated_until_it_is_taken_and_every_attempt_is_signed(
    http: httpx.AsyncClient, gateway: Gateway, receiver: Receiver
) -> None:
    receiver.answers = [500, 302]
    webhook = await create(http, f"{receiver.url}/hook?x=1", events=["ready"])
    event = happened(await create_kb(http))

    async with sending(gateway):
        assert await gateway.webhooks.enqueue(event) == 1
        [entry] = await until_settled(http, webhook)

    assert (entry["status"], entry["attempts"]) == ("delivered", 3)
    assert (entry["response_code"], entry["error"]) == (200, None)
    assert entry["event_id"] == event.id
    assert len(receiver.received) == 3
    assert len({headers["webhook-id"] for headers, _ in receiver.received}) == 1
    for headers, body in receiver.received:
        verify(webhook["secret"], headers, body)
        assert headers["content-type"] == "application/json"
        assert json.loads(body)["data"] == {
            "document_id": str(event.document_id),
            "kb_id": str(event.kb_id),
            "revision": 1,
            "status": "ready",
            "error_code": None,
            "chunk_count": 3,
            "embedded_count": 3,
        }


async def test_what_is_never_taken_is_given_up_and_can_be_sent_again_by_hand(
    http: httpx.AsyncClient, gateway: Gateway, receiver: Receiver, pool: Pool
) -> None:
    receiver.answers = [503] * 4
    webhook = await create(http, receiver.url)
    await gateway.webhooks.enqueue(happened(await create_kb(http)))

    async with sending(gateway):
        [entry] = await until_settled(http, webhook)
        assert (entry["status"], entry["attempts"]) == ("failed", 4)
        assert (entry["response_code"], entry["error"]) == (503, "refused_by_endpoint")

        again = await http.post(f"/webhooks/{webhook['id']}/deliveries/{entry['id']}/redeliver")
        assert (again.status_code, again.json()["status"]) == (202, "pending")
        [entry] = await until_settled(http, webhook)

    assert (entry["status"], entry["attempts"]) == ("delivered", 1)
    assert len({headers["webhook-id"] for headers, _ in receiver.received}) == 1


async def test_an_endpoint_that_does_not_answer_is_an_error_in_the_log(
    http: httpx.AsyncClient, gateway: Gateway
) -> None:
    webhook = await create(http, "http://127.0.0.1:1/")
    await gateway.webhooks.enqueue(happened(await create_kb(http)))
    async with sending(gateway, retry_s=()):
        [entry] = await until_settled(http, webhook)
    assert (entry["status"], entry["response_code"], entry["error"]) == ("failed", None, "ConnectError")


async def test_what_was_allowed_once_is_refused_when_sent(
    http: httpx.AsyncClient, gateway: Gateway, receiver: Receiver
) -> None:
    webhook = await create(http, receiver.url.replace("127.0.0.1", "localhost"))
    await gateway.webhooks.enqueue(happened(await create_kb(http)))
    endpoints = HttpEndpoints(allow_private=False, timeout_s=5)
    sender = WebhookSender(gateway.webhooks, endpoints, DeliveryPolicy(None, (), 8, poll_s=0.02))
    async with running(sender.run):
        [entry] = await until_settled(http, webhook)
    await endpoints.close()
    assert (entry["status"], entry["error"], receiver.received) == ("failed", "endpoint_refused", [])


async def test_events_are_filtered_by_state_and_knowledge_base(
    http: httpx.AsyncClient, gateway: Gateway, receiver: Receiver
) -> None:
    kb, other = await create_kb(http), await create_kb(http)
    webhook = await create(http, receiver.url, events=["ready", "failed"], kb_ids=[str(kb)])
    for status in EventStatus:
        await gateway.webhooks.enqueue(happened(kb, status))
        await gateway.webhooks.enqueue(happened(other, status))

    async with sending(gateway):
        await until_settled(http, webhook)

    assert sorted(receiver.events()) == ["document.failed", "document.ready"]


async def test_only_what_the_user_may_see_is_delivered(
    http: httpx.AsyncClient, gateway: Gateway, pool: Pool
) -> None:
    own = await create_kb(http)
    http.headers.update(bearer(BOB, teams=(TEAM,), roles=("editor",)))
    team = await create_kb(http, owner_type="team", owner_id=str(TEAM))
    bobs = await create_kb(http)
    http.headers.update(bearer(ALICE, teams=(TEAM,)))
    webhook = await create(http, "http://127.0.0.1:1/")

    assert [await gateway.webhooks.enqueue(happened(kb)) for kb in (own, team, bobs, uuid4())] == [1, 1, 0, 0]
    await pool.execute("UPDATE knowledge_bases SET owner_id = $2 WHERE id = $1", own, BOB)
    assert await gateway.webhooks.enqueue(happened(own)) == 0
    assert len(await log_of(http, webhook)) == 2


async def test_an_event_is_delivered_once_however_often_it_arrives_and_none_from_before_the_webhook(
    http: httpx.AsyncClient, gateway: Gateway
) -> None:
    kb = await create_kb(http)
    before = happened(kb)
    await create(http, "http://127.0.0.1:1/")
    event = happened(kb)
    assert [await gateway.webhooks.enqueue(event) for _ in range(3)] == [1, 0, 0]
    assert await gateway.webhooks.enqueue(before) == 0


@pytest.mark.broker
async def test_the_service_tells_a_webhook_of_a_document_from_the_upload_to_its_deletion(
    http: httpx.AsyncClient,
    pool: Pool,
    postgres_settings: PostgresSettings,
    kafka_settings: KafkaSettings,
    tmp_path: Path,
    receiver: Receiver,
) -> None:
    settings = IngestSettings(
        roles=frozenset({Role.GATEWAY, Role.RELAY, Role.WEBHOOKS}),
        grpc=GrpcSettings(port=0),
        http=HttpSettings(port=0),
        auth=AUTH,
        postgres=postgres_settings,
        kafka=kafka_settings,
        store=StoreSettings(directory=tmp_path),
        webhooks=WebhooksSettings(allow_private=True),
    )
    # The gateway takes documents in once something can embed them.
    await pool.execute("INSERT INTO embedding_spaces VALUES ('t', 'model', 3, 'active', 'vectors_t')")
    await pool.execute("CREATE TABLE vectors_t (chunk_id uuid)")
    async with (
        bootstrap(settings) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=bearer(ALICE), timeout=10) as client,
    ):
        kb = await create_kb(client)
        webhook = await create(client, receiver.url)
        uploaded = await client.post(
            f"/knowledge-bases/{kb}/documents", params={"filename": "a.txt"}, content=b"A."
        )
        document_id = uploaded.json()["document_id"]
        documents = PostgresDocuments(pool, kafka_settings.topics)
        await documents.begin(UUID(document_id), 1)
        await documents.fail(UUID(document_id), 1, "corrupt_file", "cannot be read")
        await client.delete(f"/documents/{document_id}")
        await eventually(lambda: len(receiver.received) == 4)

    told = sorted(event.removeprefix("document.") for event in receiver.events())
    assert told == ["deleted", "failed", "pending", "processing"]
    for headers, body in receiver.received:
        verify(webhook["secret"], headers, body)
        assert json.loads(body)["data"]["document_id"] == document_id
