"""Server-sent events, over a real server: httpx's in-process transport does not stream."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import jwt
import pytest

from kbmesh.auth import Authenticator, Principal
from kbmesh.errors import Unavailable
from kbmesh.messaging import KafkaSettings, Topics
from kbmesh.postgres import Pool, PostgresSettings
from services.ingest.adapters.postgres import PostgresDocuments, listen_for_documents
from services.ingest.adapters.uvicorn import serve_http
from services.ingest.bootstrap import bootstrap
from services.ingest.domain.models import Document
from services.ingest.entrypoints.http import Gateway, create_app
from services.ingest.handlers.watching import Alive, Complete, Watches, WatchLimits, follow
from services.ingest.settings import HttpSettings, IngestSettings, Role, StoreSettings
from tests.support.gateway import AUTH, SECRET, bearer, make_gateway

ALICE, BOB, TEAM = UUID(int=1), UUID(int=2), UUID(int=3)
TOPICS = Topics("kbmesh")
LIMITS = WatchLimits(per_process=3, per_principal=2, heartbeat_s=30, reread_s=600, pause_s=0)


@dataclass
class Stream:
    """Reads events; a comment counts as the event `alive`."""

    response: httpx.Response
    lines: AsyncIterator[str]

    async def next(self) -> tuple[str, dict[str, Any]]:
        name, data = "", "{}"
        async with asyncio.timeout(10):
            async for line in self.lines:
                field, _, value = line.partition(":")
                match field:
                    case "event":
                        name = value.strip()
                    case "data":
                        data = value
                    case "" if value:
                        name = "alive"
                    case "" if name:
                        return name, json.loads(data)
        return "end", {}

    async def until_complete(self) -> list[dict[str, Any]]:
        """The documents that the stream begins with."""
        documents = []
        while (event := await self.next())[0] == "document":
            documents.append(event[1])
        assert event[0] == "complete"
        return documents


@dataclass
class Server:
    http: httpx.AsyncClient
    gateway: Gateway

    @asynccontextmanager
    async def stream(self, path: str, **headers: str) -> AsyncIterator[Stream]:
        async with self.http.stream("GET", path, headers=headers) as response:
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            yield Stream(response, response.aiter_lines())

    async def refused(self, path: str) -> tuple[int, str]:
        answer = await self.http.get(path)
        return answer.status_code, answer.json()["code"]

    async def create_kb(self) -> str:
        created: dict[str, str] = (await self.http.post("/knowledge-bases", json={"name": "Finance"})).json()
        return created["id"]

    async def upload(self, kb: str, name: str = "policy.txt", data: bytes = b"Revenue is booked.") -> str:
        answer = await self.http.post(f"/knowledge-bases/{kb}/documents", params={"filename": name}, content=data)
        document_id: str = answer.json()["document_id"]
        return document_id


@asynccontextmanager
async def serving(gateway: Gateway) -> AsyncIterator[Server]:
    async with (
        serve_http(create_app(gateway), "127.0.0.1", 0, 5) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=bearer(ALICE), timeout=10) as http,
    ):
        try:
            yield Server(http, gateway)
        finally:
            gateway.watches.close()


@pytest.fixture
def gateway(pool: Pool, tmp_path: Path) -> Gateway:
    return replace(make_gateway(pool, tmp_path / "store", TOPICS), watches=Watches(LIMITS))


@asynccontextmanager
async def listening(settings: PostgresSettings, watches: Watches) -> AsyncIterator[asyncio.Queue[None]]:
    """A queue with an entry for each time that it has begun to listen."""
    begun: asyncio.Queue[None] = asyncio.Queue()

    def connected() -> None:
        begun.put_nowait(None)
        watches.changed_unheard()

    task = asyncio.create_task(listen_for_documents(settings, watches.changed, connected))
    try:
        await asyncio.wait_for(begun.get(), 10)
        yield begun
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
async def server(gateway: Gateway, postgres_settings: PostgresSettings) -> AsyncIterator[Server]:
    async with listening(postgres_settings, gateway.watches), serving(gateway) as server:
        yield server


async def test_a_stream_begins_with_the_state_of_everything_and_goes_on_with_changes(
    server: Server, pool: Pool
) -> None:
    kb = await server.create_kb()
    ids = [await server.upload(kb, f"{number}.txt") for number in range(3)]
    await server.upload(await server.create_kb(), "elsewhere.txt")

    async with server.stream(f"/knowledge-bases/{kb}/events") as stream:
        assert [document["id"] for document in await stream.until_complete()] == ids

        documents = PostgresDocuments(pool, TOPICS)
        revision = await documents.begin(UUID(ids[1]), 1)
        assert revision is not None
        name, shown = await stream.next()
        assert (name, shown["id"], shown["status"]) == ("document", ids[1], "processing")
        await documents.fail(UUID(ids[1]), 1, "corrupt_file", "cannot be read")
        name, shown = await stream.next()
        assert (name, shown["status"], shown["error_code"]) == ("document", "failed", "corrupt_file")
        assert shown == (await server.http.get(f"/documents/{ids[1]}")).json()

        added = await server.upload(kb, "new.txt")
        name, shown = await stream.next()
        assert (name, shown["id"], shown["status"]) == ("document", added, "pending")
        await server.http.delete(f"/documents/{ids[0]}")
        assert await stream.next() == ("deleted", {"id": ids[0]})


async def test_a_document_has_a_stream_of_its_own_which_ends_with_it(server: Server) -> None:
    kb = await server.create_kb()
    document, other = await server.upload(kb), await server.upload(kb, "other.txt")

    async with server.stream(f"/documents/{document}/events") as stream:
        [shown] = await stream.until_complete()
        assert (shown["id"], shown["revision"]) == (document, 1)
        await server.http.delete(f"/documents/{other}")
        await server.upload(kb, data=b"Another text.")
        assert (await stream.next())[1]["revision"] == 2
        await server.http.delete(f"/documents/{document}")
        assert await stream.next() == ("deleted", {"id": document})
        assert await stream.next() == ("end", {})


async def test_the_streams_of_a_knowledge_base_end_with_it(server: Server) -> None:
    kb = await server.create_kb()
    document = await server.upload(kb)

    async with server.stream(f"/knowledge-bases/{kb}/events") as all_of_it:
        async with server.stream(f"/documents/{document}/events") as one:
            await all_of_it.until_complete()
            await one.until_complete()
            await server.http.delete(f"/knowledge-bases/{kb}")
            assert [await one.next(), await one.next()] == [("deleted", {"id": document}), ("end", {})]
        assert [await all_of_it.next(), await all_of_it.next()] == [("deleted", {"id": kb}), ("end", {})]


async def test_an_empty_knowledge_base_tells_of_its_end_too(server: Server) -> None:
    kb = await server.create_kb()
    async with server.stream(f"/knowledge-bases/{kb}/events") as stream:
        assert await stream.until_complete() == []
        await server.http.delete(f"/knowledge-bases/{kb}")
        assert await stream.next() == ("deleted", {"id": kb})


async def test_a_stream_that_is_connected_again_misses_nothing(server: Server, pool: Pool) -> None:
    kb = await server.create_kb()
    document = await server.upload(kb)
    async with server.stream(f"/knowledge-bases/{kb}/events") as stream:
        async with asyncio.timeout(10):
            async for line in stream.lines:
                if line.startswith("id: "):
                    last_id = line.removeprefix("id: ")
                    break
    assert last_id.startswith(f"{document}:1:")
    await PostgresDocuments(pool, TOPICS).begin(UUID(document), 1)

    async with server.stream(f"/knowledge-bases/{kb}/events", **{"Last-Event-ID": last_id}) as stream:
        assert [shown["status"] for shown in await stream.until_complete()] == ["processing"]


async def test_what_a_caller_may_not_see_is_as_what_is_missing(server: Server) -> None:
    kb = await server.create_kb()
    document = await server.upload(kb)
    server.http.headers.update(bearer(BOB, roles=("admin",)))

    for target in (kb, str(uuid4())):
        assert await server.refused(f"/knowledge-bases/{target}/events") == (404, "knowledge_base_not_found")
    for target in (document, str(uuid4())):
        assert await server.refused(f"/documents/{target}/events") == (404, "document_not_found")
    del server.http.headers["Authorization"]
    assert await server.refused(f"/documents/{document}/events") == (401, "token_missing")


async def test_a_team_sees_its_documents_and_an_open_stream_ends_with_the_access(
    server: Server, pool: Pool
) -> None:
    server.http.headers.update(bearer(BOB, teams=(TEAM,)))
    created = await server.http.post(
        "/knowledge-bases", json={"name": "Team", "owner_type": "team", "owner_id": str(TEAM)}
    )
    kb = created.json()["id"]
    document = await server.upload(kb)

    async with server.stream(f"/knowledge-bases/{kb}/events") as stream:
        await stream.until_complete()
        await pool.execute("UPDATE knowledge_bases SET owner_id = $2 WHERE id = $1", UUID(kb), uuid4())
        await PostgresDocuments(pool, TOPICS).begin(UUID(document), 1)
        assert [await stream.next(), await stream.next()] == [("deleted", {"id": kb}), ("end", {})]


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
