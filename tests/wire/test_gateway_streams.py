"""The life of event streams: limits, silence, lost notifications, outages, stops."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import jwt
import pytest

from kbmesh.auth import Authenticator, Principal
from kbmesh.errors import Unavailable
from kbmesh.http import HttpSettings
from kbmesh.messaging import KafkaSettings
from kbmesh.postgres import Pool, PostgresSettings
from kbmesh.rpc import GrpcSettings
from services.ingest.adapters.postgres import PostgresDocuments
from services.ingest.bootstrap import bootstrap
from services.ingest.domain.models import Document
from services.ingest.entrypoints.http import Gateway
from services.ingest.handlers.watching import Alive, Complete, Watches, follow
from services.ingest.settings import IngestSettings, Role, StoreSettings
from tests.support.events import LIMITS, TOPICS, Server, Stream, listening, serving
from tests.support.gateway import ALICE, AUTH, BOB, SECRET, bearer, make_gateway


@pytest.fixture
def gateway(pool: Pool, tmp_path: Path) -> Gateway:
    return replace(make_gateway(pool, tmp_path / "store", TOPICS), watches=Watches(LIMITS))


@pytest.fixture
async def server(gateway: Gateway, postgres_settings: PostgresSettings) -> AsyncIterator[Server]:
    async with listening(postgres_settings, gateway.watches), serving(gateway) as server:
        yield server


async def test_a_stream_ends_with_its_token(gateway: Gateway, postgres_settings: PostgresSettings) -> None:
    watches = Watches(replace(LIMITS, heartbeat_s=0.1))
    strict = Authenticator(AUTH.model_copy(update={"leeway_s": 0}))
    claims = {"sub": str(ALICE), "aud": AUTH.audience, "exp": datetime.now(UTC) + timedelta(seconds=2)}
    async with serving(replace(gateway, watches=watches, authenticator=strict)) as server:
        kb = await server.create_kb()
        server.http.headers["Authorization"] = f"Bearer {jwt.encode(claims, SECRET, 'HS256')}"
        async with server.stream(f"/knowledge-bases/{kb}/events") as stream:
            await stream.until_complete()
            while (event := await stream.next())[0] == "alive":
                pass
            assert event == ("end", {})
        assert await server.refused(f"/knowledge-bases/{kb}/events") == (401, "token_expired")


async def test_open_streams_are_limited_per_caller_and_per_process(server: Server) -> None:
    kb = await server.create_kb()
    path = f"/knowledge-bases/{kb}/events"
    async with server.stream(path) as first:
        await first.until_complete()
        async with server.stream(path) as second:
            await second.until_complete()
            assert await server.refused(path) == (429, "too_many_streams")
            server.http.headers.update(bearer(BOB))
            theirs = f"/knowledge-bases/{await server.create_kb()}/events"
            async with server.stream(theirs):
                assert await server.refused(theirs) == (429, "too_many_streams")

    # The places of those that went are free again, once the server has noticed.
    async with asyncio.timeout(10):
        while server.gateway.watches.count:
            await asyncio.sleep(0.01)
    async with server.stream(theirs) as again:
        await again.until_complete()


async def test_a_quiet_stream_says_that_it_is_alive(gateway: Gateway) -> None:
    async with serving(replace(gateway, watches=Watches(replace(LIMITS, heartbeat_s=0.05)))) as server:
        kb = await server.create_kb()
        async with server.stream(f"/knowledge-bases/{kb}/events") as stream:
            await stream.until_complete()
            assert [await stream.next() for _ in range(3)] == [("alive", {})] * 3


async def test_a_change_whose_notification_got_lost_is_told_nevertheless(gateway: Gateway, pool: Pool) -> None:
    limits = replace(LIMITS, heartbeat_s=0.05, reread_s=0.2)
    async with serving(replace(gateway, watches=Watches(limits))) as server:  # nobody listens
        kb = await server.create_kb()
        document = await server.upload(kb)
        async with server.stream(f"/knowledge-bases/{kb}/events") as stream:
            await stream.until_complete()
            await PostgresDocuments(pool, TOPICS).begin(UUID(document), 1)
            while (event := await stream.next())[0] == "alive":
                pass
            assert event[1]["status"] == "processing"
            await server.http.delete(f"/documents/{document}")
            while (event := await stream.next())[0] == "alive":
                pass
            assert event == ("deleted", {"id": document})


async def test_a_lost_connection_for_notifications_is_replaced_and_what_it_missed_is_told(
    gateway: Gateway, postgres_settings: PostgresSettings, pool: Pool
) -> None:
    async with listening(postgres_settings, gateway.watches) as begun, serving(gateway) as server:
        kb = await server.create_kb()
        document = await server.upload(kb)
        async with server.stream(f"/knowledge-bases/{kb}/events") as stream:
            await stream.until_complete()
            await pool.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
            )
            await PostgresDocuments(pool, TOPICS).begin(UUID(document), 1)
            assert (await stream.next())[1]["status"] == "processing"
            assert begun.qsize() == 1


async def test_a_large_knowledge_base_is_told_whole_and_each_document_once(server: Server, pool: Pool) -> None:
    kb = await server.create_kb()
    await pool.execute(
        "INSERT INTO documents (id, kb_id, filename, content_type, category, size_bytes, content_sha256,"
        " storage_key, uploader) SELECT gen_random_uuid(), $1, n || '.txt', 'text/plain', 'other', 1, $2,"
        " gen_random_uuid(), $3 FROM generate_series(1, 450) AS n",
        UUID(kb),
        hashlib.sha256().digest(),
        ALICE,
    )
    async with server.stream(f"/knowledge-bases/{kb}/events") as stream:
        assert len({document["id"] for document in await stream.until_complete()}) == 450
        await pool.execute("UPDATE documents SET status = 'processing', updated_at = now()")
        changed = [(await stream.next())[1] for _ in range(450)]
        assert len({document["id"] for document in changed}) == 450
        assert {document["status"] for document in changed} == {"processing"}


async def test_a_stopping_process_ends_its_streams_at_once_and_opens_no_more(server: Server) -> None:
    kb = await server.create_kb()
    async with server.stream(f"/knowledge-bases/{kb}/events") as stream:
        await stream.until_complete()
        server.gateway.watches.close()
        async with asyncio.timeout(2):
            assert await stream.next() == ("end", {})
    assert await server.refused(f"/knowledge-bases/{kb}/events") == (503, "stopping")


async def test_the_service_does_not_wait_for_open_streams_when_it_stops(
    postgres_settings: PostgresSettings, tmp_path: Path
) -> None:
    settings = IngestSettings(
        roles=frozenset({Role.GATEWAY}),
        grpc=GrpcSettings(port=0),
        http=HttpSettings(port=0, stop_grace_s=60),
        auth=AUTH,
        postgres=postgres_settings,
        kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"),
        store=StoreSettings(directory=tmp_path),
    )
    async with httpx.AsyncClient(headers=bearer(ALICE), timeout=10) as http:
        async with bootstrap(settings) as port:
            http.base_url = httpx.URL(f"http://127.0.0.1:{port}")
            kb = (await http.post("/knowledge-bases", json={"name": "Finance"})).json()["id"]
            response = await http.send(http.build_request("GET", f"/knowledge-bases/{kb}/events"), stream=True)
            stream = Stream(response, response.aiter_lines())
            await stream.until_complete()
            stopped_at = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - stopped_at < 5
        assert await stream.next() == ("end", {})
        await response.aclose()


async def test_a_stream_outlives_an_outage_of_the_database_and_tells_nothing_meanwhile() -> None:
    watches = Watches(replace(LIMITS, heartbeat_s=0.01))
    outages = iter([True, True, False])

    async def read(principal: Principal, only: object) -> AsyncIterator[list[Document]]:
        if next(outages):
            raise Unavailable("the database does not answer")
        assert only is None
        yield []

    async def authenticate() -> Principal:
        return Principal(ALICE)

    with watches.open(Principal(ALICE), uuid4()) as watch:
        following = follow(watch, read, authenticate, watches.limits)
        assert [await anext(following) for _ in range(3)] == [Alive(), Alive(), Complete()]


async def test_the_openapi_document_describes_the_streams(server: Server) -> None:
    paths = (await server.http.get("/openapi.json")).json()["paths"]
    for path in ("/knowledge-bases/{kb_id}/events", "/documents/{document_id}/events"):
        answers = paths[path]["get"]["responses"]
        assert list(answers["200"]["content"]) == ["text/event-stream"]
        assert {"401", "404", "429", "503"} <= answers.keys()
