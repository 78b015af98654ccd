"""What event streams tell, and whom."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from kbmesh.postgres import Pool, PostgresSettings
from services.ingest.adapters.postgres import PostgresDocuments
from services.ingest.entrypoints.http import Gateway
from services.ingest.handlers.watching import Watches
from tests.support.events import LIMITS, TOPICS, Server, listening, serving
from tests.support.gateway import BOB, TEAM, bearer, make_gateway


@pytest.fixture
def gateway(pool: Pool, tmp_path: Path) -> Gateway:
    return replace(make_gateway(pool, tmp_path / "store", TOPICS), watches=Watches(LIMITS))


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
    server.http.headers.update(bearer(BOB, teams=(TEAM,), roles=("editor",)))
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
