"""Forms with several files whose connection is cut or stands still, over real sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from kbmesh.messaging import Topics
from kbmesh.postgres import Pool
from tests.support.events import Server, serving
from tests.support.forms import FORM, contents, file, outcomes
from tests.support.gateway import ALICE, bearer, make_gateway, stored_files


@pytest.fixture
async def server(pool: Pool, store_dir: Path) -> AsyncIterator[Server]:
    async with serving(make_gateway(pool, store_dir, Topics("kbmesh"))) as server:
        server.http.headers.update(bearer(ALICE))
        yield server


async def begin(server: Server, kb: str, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection over which an upload has begun that is announced as longer."""
    reader, writer = await asyncio.open_connection(server.http.base_url.host, server.http.base_url.port)
    head = [
        f"POST /knowledge-bases/{kb}/documents HTTP/1.1",
        "Host: gateway",
        f"Authorization: {bearer(ALICE)['Authorization']}",
        "Connection: close",
        "Content-Length: 900000",
        f"Content-Type: {FORM['Content-Type']}",
    ]
    writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)
    await writer.drain()
    return reader, writer


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def documents(pool: Pool) -> list[str]:
    return [row["filename"] for row in await pool.fetch("SELECT filename FROM documents ORDER BY filename")]


@pytest.mark.parametrize(
    ("rest", "kept"),
    [
        (file("c.txt", b"three" * 10_000)[:-5000], {"a.txt": b"one", "b.txt": b"two"}),
        (b"--b\r\nContent-Disposition: form-d", {"a.txt": b"one", "b.txt": b"two"}),
        (b"--", {"a.txt": b"one"}),
    ],
    ids=["inside", "in a header", "in a boundary"],
)
async def test_a_connection_cut_in_a_form_keeps_the_files_before_and_nothing_of_the_rest(
    server: Server, pool: Pool, store_dir: Path, rest: bytes, kept: dict[str, bytes]
) -> None:
    kb = await server.create_kb()
    body = file("a.txt", b"one") + file("b.txt", b"two") + rest
    _, writer = await begin(server, kb, body)
    begun = 3 if b"three" in rest else 2
    await until(lambda: len(stored_files(store_dir)) == begun)
    writer.close()
    async with asyncio.timeout(10):
        while (await documents(pool), contents(store_dir)) != (sorted(kept), sorted(kept.values())):
            await asyncio.sleep(0.01)
    assert await server.upload(kb)


async def test_a_connection_cut_before_a_second_file_leaves_nothing(
    server: Server, pool: Pool, store_dir: Path
) -> None:
    kb = await server.create_kb()

    async def pieces() -> AsyncIterator[bytes]:
        yield file("a.txt", b"one" * 10_000)
        await until(lambda: stored_files(store_dir))
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await server.http.post(f"/knowledge-bases/{kb}/documents", content=pieces(), headers=FORM)
    await until(lambda: not stored_files(store_dir))
    assert await documents(pool) == []


async def test_a_form_that_stands_still_between_its_files_is_given_up(pool: Pool, store_dir: Path) -> None:
    async with serving(make_gateway(pool, store_dir, Topics("kbmesh"), idle_timeout_s=0.5)) as server:
        kb = await server.create_kb()
        files = file("a.txt", b"one") + file("b.txt", b"two") + b"--b\r\n"
        reader, writer = await begin(server, kb, files)
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert outcomes(httpx.Response(int(head.split()[1]), content=body)) == [
        ("a.txt", 202, None),
        ("b.txt", 202, None),
        (None, 408, "upload_stalled"),
    ]
    assert contents(store_dir) == [b"one", b"two"]
