"""Another model and other dimensions, while people upload and search."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.e2e.conftest import TINY_MODEL, World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

OLD, CUT, TINY = "all_minilm_l6_v2_384", "all_minilm_l6_v2_256", "tiny_32"
SEARCHERS = 2
BACKLOG = "SELECT count(*) FROM space_backlog WHERE space_id = $1"


async def spaces(world: World, *arguments: str) -> Any:
    """What an operator types, and the JSON that is answered."""
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("kbmesh"),
        *("spaces", "--target", world.addresses.embedder, *arguments, "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(out)


async def filled(world: World, space_id: str) -> None:
    async with asyncio.timeout(120):
        while True:
            states = {space["space_id"]: space for space in (await spaces(world, "status"))["spaces"]}
            if states[space_id].get("indexed"):
                return
            await asyncio.sleep(0.2)


@asynccontextmanager
async def again_and_again(do: Callable[[], Awaitable[None]], times: int) -> AsyncIterator[None]:
    """`do`, by so many at once, until the block is left; its failures are those of the test."""
    stop = asyncio.Event()

    async def repeat() -> None:
        while not stop.is_set():
            await do()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(times):
            tasks.create_task(repeat())
        try:
            yield
        finally:
            stop.set()


async def test_model_and_dimensions_change_while_people_upload_and_search(world: World) -> None:
    kb = await world.create_kb()
    locations = [await world.upload(kb, "door.txt", b"The cellar door is painted green.")]
    await world.settled(locations[0])
    searched = 0

    async def search() -> None:
        nonlocal searched
        passages = await world.ask(kb, "What colour is the cellar door?")
        assert passages[0].content == "The cellar door is painted green."
        searched += 1
        await asyncio.sleep(0.05)

    async def upload() -> None:
        number = len(locations)
        text = f"Shelf {number} holds {number * 3 + 1} boxes of candles."
        locations.append(await world.upload(kb, f"shelf-{number}.txt", text.encode()))
        await asyncio.sleep(0.3)

    async with again_and_again(search, SEARCHERS), again_and_again(upload, 1):
        created = await spaces(world, "create", "all-MiniLM-L6-v2", "--dimensions", "256")
        assert created["space"]["space_id"] == CUT
        assert "not known to be trained" in created["warnings"][0]
        await filled(world, CUT)
        activated = await spaces(world, "activate", CUT)
        assert activated["report"]["recall_candidate"] > 0.9
        await spaces(world, "create", TINY_MODEL)
        await filled(world, TINY)
        before = searched
        await spaces(world, "activate", TINY, "--force")
        await spaces(world, "rollback")
        assert searched > before
        await spaces(world, "activate", OLD)

    documents = [await world.settled(location) for location in locations]
    assert {document["status"] for document in documents} == {"ready"}
    connection = await asyncpg.connect(world.addresses.postgres_dsn)
    try:
        chunks = await connection.fetchval("SELECT count(*) FROM chunks WHERE kb_id = $1 AND live", kb)
        assert chunks == len(locations)
        for space_id in (OLD, CUT, TINY):
            async with asyncio.timeout(60):
                while await connection.fetchval(
                    "SELECT count(*) FROM space_backlog WHERE space_id = $1", space_id
                ):
                    await asyncio.sleep(0.1)
            vectors = await connection.fetchval(
                f"SELECT count(*) FROM vectors_{space_id} WHERE live AND kb_id = $1",  # noqa: S608
                kb,
            )
            assert vectors == chunks, space_id
    finally:
        await connection.close()
    for space_id in (CUT, TINY):
        await spaces(world, "drop", space_id)
    listed = await spaces(world, "list")
    assert [(space["space_id"], space["status"]) for space in listed["spaces"]] == [(OLD, "SPACE_STATUS_ACTIVE")]
    await search()
