"""One suite for every object store; S3 is moto's server unless KBMESH_TEST_S3 names one (http://key:secret@host:port)."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from moto.server import ThreadedMotoServer

from kbmesh.errors import NotFound, Unavailable
from services.ingest.adapters.directory import DirectoryStore
from services.ingest.adapters.s3 import PART_BYTES, S3Store
from services.ingest.ports import ObjectStore


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    if running := os.environ.get("KBMESH_TEST_S3"):
        yield running
        return
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://key:secret@{host}:{port}"
    server.stop()


def s3_store(url: str, bucket: str) -> S3Store:
    parts = urlsplit(url)
    return S3Store(
        endpoint=f"{parts.hostname}:{parts.port}",
        bucket=bucket,
        access_key=parts.username or "",
        secret_key=parts.password or "",
        secure=False,
        region="us-east-1",
        threads=4,
    )


@pytest.fixture(params=["directory", "s3"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    if request.param == "directory":
        yield DirectoryStore(tmp_path / "store")
        return
    s3 = s3_store(request.getfixturevalue("s3_url"), f"test-{uuid4().hex[:8]}")
    await s3.create_bucket()
    yield s3
    s3.close()


async def body(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        await asyncio.sleep(0)
        yield part


async def read(store: ObjectStore, key: str, tmp_path: Path) -> bytes:
    path = tmp_path / uuid4().hex
    await store.fetch(key, path)
    return path.read_bytes()


async def test_what_is_put_can_be_fetched(store: ObjectStore, tmp_path: Path) -> None:
    await store.put("kb/one", body(b"ab", b"c"))
    assert await read(store, "kb/one", tmp_path) == b"abc"


async def test_an_object_larger_than_a_part_comes_back_whole(store: ObjectStore, tmp_path: Path) -> None:
    parts = [bytes([n]) * 1_000_003 for n in range(2 * PART_BYTES // 1_000_003 + 1)]
    await store.put("kb/large", body(*parts))
    assert await read(store, "kb/large", tmp_path) == b"".join(parts)


async def test_an_object_is_read_as_a_stream_of_small_pieces(store: ObjectStore) -> None:
    whole = b"".join(bytes([n]) * 300_007 for n in range(9))
    await store.put("kb/streamed", body(whole))
    pieces = [piece async for piece in store.read("kb/streamed")]
    assert b"".join(pieces) == whole
    assert all(0 < len(piece) <= 256 * 1024 for piece in pieces)


async def test_a_reader_that_stops_early_leaves_the_store_usable(store: ObjectStore, tmp_path: Path) -> None:
    await store.put("kb/streamed", body(b"x" * 1_000_000))
    for _ in range(8):
        async with aclosing(store.read("kb/streamed")) as pieces:
            assert await anext(pieces)
    assert len(await read(store, "kb/streamed", tmp_path)) == 1_000_000


async def test_a_missing_object_is_not_found(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        await store.fetch("kb/none", tmp_path / "x")
    with pytest.raises(NotFound):
        await anext(store.read("kb/none"))


async def test_deletion_is_idempotent(store: ObjectStore, tmp_path: Path) -> None:
    await store.put("kb/one", body(b"x"))
    await store.delete("kb/one")
    await store.delete("kb/one")
    with pytest.raises(NotFound):
        await store.fetch("kb/one", tmp_path / "x")


async def test_an_object_exists_from_its_last_byte_to_its_deletion(store: ObjectStore) -> None:
    async def watched() -> AsyncIterator[bytes]:
        yield b"x"
        assert not await store.exists("kb/one")

    await store.put("kb/one", watched())
    assert await store.exists("kb/one")
    assert not await store.exists("kb/on")
    await store.delete("kb/one")
    assert not await store.exists("kb/one")


async def keys(store: ObjectStore, *, older_than_s: float) -> list[str]:
    older_than = datetime.now(UTC) - timedelta(seconds=older_than_s)
    return sorted([key async for key in store.keys(older_than)])


async def test_keys_are_those_of_what_is_old_enough(store: ObjectStore) -> None:
    assert await keys(store, older_than_s=-60) == []
    for key in ("kb/one", "kb/two", "other/one", "plain"):
        await store.put(key, body(b"x"))
    await store.delete("kb/two")

    assert await keys(store, older_than_s=-60) == ["kb/one", "other/one", "plain"]
    assert await keys(store, older_than_s=60) == []


async def test_a_store_of_several_pages_is_listed_whole(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("directory", "s3"):
        monkeypatch.setattr(f"services.ingest.adapters.{module}.LIST_PAGE", 2)
    names = [f"kb/{n}" for n in range(5)]
    for name in names:
        await store.put(name, body(b"x"))
    assert await keys(store, older_than_s=-60) == names


@pytest.mark.parametrize("size", [3, PART_BYTES + 1])
async def test_a_body_that_fails_leaves_nothing_and_its_error_comes_through(
    store: ObjectStore, tmp_path: Path, size: int
) -> None:
    class Broken(Exception):
        pass

    async def failing() -> AsyncIterator[bytes]:
        yield b"x" * size
        raise Broken

    with pytest.raises(Broken):
        await store.put("kb/broken", failing())
    with pytest.raises(NotFound):
        await store.fetch("kb/broken", tmp_path / "x")


async def test_a_cancelled_put_leaves_nothing(store: ObjectStore, tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"x"
        begun.set()
        await asyncio.Event().wait()

    putting = asyncio.create_task(store.put("kb/cancelled", endless()))
    await begun.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    with pytest.raises(NotFound):
        await store.fetch("kb/cancelled", tmp_path / "x")
    await store.put("kb/next", body(b"next"))
    assert await read(store, "kb/next", tmp_path) == b"next"


async def test_a_store_that_is_there_passes_its_check(store: ObjectStore) -> None:
    await store.check()


async def test_an_s3_server_that_is_down_is_unavailable(tmp_path: Path) -> None:
    store = s3_store("http://key:secret@127.0.0.1:1", "bucket")
    for call in (
        store.check(),
        store.delete("k"),
        store.exists("k"),
        store.fetch("k", tmp_path / "x"),
        store.put("k", body(b"x")),
        anext(store.read("k")),
        anext(store.keys(datetime.now(UTC))),
    ):
        with pytest.raises(Unavailable):
            await call
    store.close()


async def test_a_directory_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = DirectoryStore(tmp_path / "file" / "store")
    with pytest.raises(Unavailable):
        await store.check()
    with pytest.raises(Unavailable):
        await store.put("k", body(b"x"))


@pytest.mark.parametrize("key", ["../outside", "/etc/passwd", "a/../../outside", ""])
async def test_a_directory_store_stays_inside_its_directory(tmp_path: Path, key: str) -> None:
    store = DirectoryStore(tmp_path / "store")
    with pytest.raises(NotFound):
        await store.put(key, body(b"x"))
    assert list(tmp_path.iterdir()) == []
