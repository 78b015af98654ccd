"""Uploads that lie about themselves or break off, over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from kbmesh.messaging import Topics
from kbmesh.postgres import Pool
from tests.support.events import Server, serving
from tests.support.gateway import ALICE, bearer, make_gateway, stored_files

TEXT = b"Revenue is booked on delivery.\n"


@pytest.fixture
async def server(pool: Pool, store_dir: Path) -> AsyncIterator[Server]:
    async with serving(make_gateway(pool, store_dir, Topics("kbmesh"), idle_timeout_s=1)) as server:
        server.http.headers.update(bearer(ALICE))
        yield server


@pytest.fixture
async def kb(server: Server) -> str:
    return await server.create_kb()


async def send(server: Server, kb: str, body: bytes, *headers: str, cut: bool = False) -> tuple[int, str]:
    """Status and code of the answer to an upload of these very bytes; (0, "") if the connection ends without."""
    address = server.http.base_url
    reader, writer = await asyncio.open_connection(address.host, address.port)
    lines = [
        f"POST /knowledge-bases/{kb}/documents?filename=a.txt HTTP/1.1",
        "Host: gateway",
        f"Authorization: {bearer(ALICE)['Authorization']}",
        "Connection: close",
        *headers,
    ]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    await writer.drain()
    try:
        if cut:
            return 0, ""
        answer = await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()
    head, _, content = answer.partition(b"\r\n\r\n")
    try:
        code = json.loads(content).get("code", "")
    except ValueError:
        code = ""
    return int(head.split()[1]), code


async def test_a_body_shorter_than_it_claims_is_given_up_and_leaves_nothing(
    server: Server, kb: str, store_dir: Path
) -> None:
    answer = await send(server, kb, TEXT, "Content-Length: 100000")
    assert answer == (408, "upload_stalled")
    assert stored_files(store_dir) == []


async def test_what_comes_behind_the_claimed_length_is_not_part_of_the_file(
    server: Server, kb: str, store_dir: Path
) -> None:
    status, _ = await send(server, kb, TEXT + b"X" * 1000, f"Content-Length: {len(TEXT)}")
    assert status == 202
    [stored] = stored_files(store_dir)
    assert stored.read_bytes() == TEXT


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: -5",),
        ("Content-Length: many",),
        ("Content-Length: 5", "Content-Length: 31"),
        ("Transfer-Encoding: gzip",),
    ],
)
async def test_a_length_that_is_none_is_refused(
    server: Server, kb: str, store_dir: Path, headers: tuple[str, ...]
) -> None:
    status, _ = await send(server, kb, TEXT, *headers)
    assert status in {400, 501}
    assert stored_files(store_dir) == []
    assert await server.upload(kb)


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/form-data; boundary=never",
        "multipart/form-data; boundary=" + "b" * 1000,
        'multipart/form-data; boundary="',
        "multipart/form-data; boundary*=utf-8''%00",
    ],
)
async def test_a_form_that_is_none_is_refused(server: Server, kb: str, store_dir: Path, content_type: str) -> None:
    answer = await send(server, kb, TEXT, f"Content-Length: {len(TEXT)}", f"Content-Type: {content_type}")
    assert answer == (400, "malformed_multipart")
    assert stored_files(store_dir) == []


async def test_the_content_decides_whatever_the_content_type_claims(server: Server, kb: str) -> None:
    for content_type in ("application/pdf", "image/png", "application/json", "x" * 1000, ";;;"):
        status, _ = await send(server, kb, TEXT, f"Content-Length: {len(TEXT)}", f"Content-Type: {content_type}")
        assert status in {200, 202}
    [document] = (await server.http.get(f"/knowledge-bases/{kb}/documents")).json()["items"]
    assert document["content_type"] == "text/plain"


async def test_a_connection_cut_in_the_middle_leaves_nothing(
    server: Server, kb: str, pool: Pool, store_dir: Path
) -> None:
    for _ in range(3):
        await send(server, kb, TEXT * 5000, "Content-Length: 900000", cut=True)
    async with asyncio.timeout(10):
        while stored_files(store_dir):
            await asyncio.sleep(0.02)
    assert await pool.fetchval("SELECT count(*) FROM documents") == 0
    assert await server.upload(kb)


@pytest.mark.parametrize("form", [False, True])
async def test_an_unusual_name_is_shown_without_its_tricks(server: Server, kb: str, form: bool) -> None:
    for name, shown in {
        "../../etc/passwd.txt": "passwd.txt",
        "a\x00b.txt": "ab.txt",
        "inv\u202etxt.exe\u200f.txt": "invtxt.exe.txt",
        "📊👩\u200d🔬.txt": "📊👩\u200d🔬.txt",
        "\u0301\u0301.txt": "\u0301\u0301.txt",
    }.items():
        answer = await upload_named(server, kb, name, form=form)
        assert (answer.status_code, answer.json().get("filename")) == (202, shown)


async def upload_named(server: Server, kb: str, name: str, *, form: bool) -> httpx.Response:
    path = f"/knowledge-bases/{kb}/documents"
    if form:
        body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="' + name.encode()
        return await server.http.post(
            path,
            content=body + b'"\r\n\r\n' + TEXT + b"\r\n--b--\r\n",
            headers={"Content-Type": "multipart/form-data; boundary=b"},
        )
    return await server.http.post(path, params={"filename": name}, content=TEXT)


@pytest.mark.parametrize("form", [False, True])
@pytest.mark.parametrize("name", ["n" * 5000, "🙂\u202e../" + "é" * 5000])
async def test_a_name_of_thousands_of_characters_is_refused(
    server: Server, kb: str, store_dir: Path, name: str, form: bool
) -> None:
    answer = await upload_named(server, kb, name, form=form)
    # Of a form, such a header is over the limit already.
    assert answer.status_code == 400
    assert answer.json()["code"] == ("malformed_multipart" if form else "filename_too_long")
    assert stored_files(store_dir) == []
    answer = await upload_named(server, kb, name[:1000], form=form)
    assert (answer.status_code, answer.json()["code"]) == (400, "filename_too_long")
