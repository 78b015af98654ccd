"""Several files in one form."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from kbmesh.errors import Unavailable
from kbmesh.postgres import Pool
from services.ingest.adapters.directory import DirectoryStore
from services.ingest.entrypoints.http import Gateway
from services.ingest.handlers.documents import UploadLimits
from tests.support.forms import FORM, contents, file, outcomes, said
from tests.support.gateway import BOB, MAX_BYTES, bearer, stored_files

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40


@pytest.fixture
def gateway(gateway: Gateway) -> Gateway:
    return replace(gateway, limits=UploadLimits(MAX_BYTES, 5, max_files=5))


async def send(
    http: httpx.AsyncClient,
    kb: str,
    *parts: bytes,
    size: int | None = None,
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    """`size`: of the pieces, in bytes, that the body comes in."""
    body = b"".join(parts) + b"--b--\r\n"

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size or len(body)):
            yield body[start : start + (size or len(body))]

    return await http.post(f"/knowledge-bases/{kb}/documents", content=pieces(), headers=FORM | (headers or {}))


@pytest.mark.parametrize("size", [1, 7, 100, None])
async def test_each_file_becomes_a_document_with_what_is_said_before_them(
    http: httpx.AsyncClient, kb: str, store_dir: Path, size: int | None
) -> None:
    answer = await send(
        http,
        kb,
        said("category", "strategy"),
        said("metadata", '{"year": 2026}'),
        file("a.txt", b"one"),
        file("b.txt", b"two\r\n--bold\r\n"),
        file("c.txt", b"three"),
        size=size,
    )

    assert outcomes(answer) == [("a.txt", 202, None), ("b.txt", 202, None), ("c.txt", 202, None)]
    for item, data in zip(answer.json()["items"], (b"one", b"two\r\n--bold\r\n", b"three"), strict=True):
        path = f"/documents/{item['document']['document_id']}"
        document = (await http.get(path)).json()
        assert (document["filename"], document["category"]) == (item["filename"], "strategy")
        assert document["metadata"] == item["document"]["metadata"] == {"year": 2026}
        assert (await http.get(f"{path}/content")).content == data
    assert len(stored_files(store_dir)) == 3


@pytest.mark.parametrize("size", [50, None])
async def test_a_bad_file_does_not_hurt_the_others(
    http: httpx.AsyncClient, kb: str, store_dir: Path, size: int | None
) -> None:
    await send(http, kb, file("known.txt", b"known"))
    answer = await send(
        http,
        kb,
        file("logo.png", PNG),
        file("known.txt", b"known"),
        file("", b"nameless"),
        file("empty.txt", b""),
        file("last.txt", b"last"),
        size=size,
    )

    assert outcomes(answer) == [
        ("logo.png", 415, "unsupported_type"),
        ("known.txt", 200, None),
        ("", 400, "filename_missing"),
        ("empty.txt", 400, "empty_file"),
        ("last.txt", 202, None),
    ]
    assert [item["document"] is None for item in answer.json()["items"]] == [True, False, True, True, False]
    assert contents(store_dir) == [b"known", b"last"]


async def test_a_file_over_the_limit_does_not_hurt_the_others_unless_it_is_twice_as_large(
    http: httpx.AsyncClient, kb: str, store_dir: Path
) -> None:
    large, last = file("large.txt", b"x" * (MAX_BYTES + 1)), file("last.txt", b"last")
    assert outcomes(await send(http, kb, large, last, size=60_000)) == [
        ("large.txt", 413, "too_large"),
        ("last.txt", 202, None),
    ]
    endless = file("endless.txt", b"x" * (2 * MAX_BYTES + 200_000))
    assert outcomes(await send(http, kb, file("b.txt", b"b"), endless, last, size=60_000)) == [
        ("b.txt", 202, None),
        ("endless.txt", 413, "too_large"),
        (None, 413, "too_large"),
    ]
    assert contents(store_dir) == [b"b", b"last"]


async def test_one_file_is_answered_as_ever(http: httpx.AsyncClient, kb: str, store_dir: Path) -> None:
    accepted = await send(http, kb, file("a.txt", b"one"), said("category", "strategy"))
    refused = await send(http, kb, file("logo.png", PNG))
    cut = await http.post(f"/knowledge-bases/{kb}/documents", content=file("b.txt", b"two"), headers=FORM)
    assert (accepted.status_code, accepted.json()["filename"]) == (202, "a.txt")
    assert (await http.get(accepted.headers["location"])).json()["category"] == "strategy"
    assert (refused.status_code, refused.json()["code"]) == (415, "unsupported_type")
    assert (cut.status_code, cut.json()["code"]) == (400, "malformed_multipart")
    assert contents(store_dir) == [b"one"]


@pytest.mark.parametrize("size", [20, None])
async def test_fields_behind_a_file_are_refused_when_there_are_several(
    http: httpx.AsyncClient, kb: str, store_dir: Path, size: int | None
) -> None:
    one, two, field = file("a.txt", b"one"), file("b.txt", b"two"), said("category", "strategy")
    between = await send(http, kb, one, field, two, size=size)
    assert (between.status_code, between.json()["code"]) == (400, "fields_behind_files")
    assert stored_files(store_dir) == []
    behind = await send(http, kb, one, two, field, size=size)
    assert outcomes(behind) == [("a.txt", 202, None), ("b.txt", 202, None), (None, 400, "fields_behind_files")]


async def test_more_files_than_the_limit_are_not_taken(http: httpx.AsyncClient, kb: str, store_dir: Path) -> None:
    files = [file(f"{n}.txt", b"%d" % n) for n in range(7)]
    answer = await send(http, kb, *files)
    assert outcomes(answer) == [(f"{n}.txt", 202, None) for n in range(5)] + [(None, 400, "too_many_files")]
    assert len(stored_files(store_dir)) == 5


async def test_bad_fields_are_told_for_each_file(http: httpx.AsyncClient, kb: str, store_dir: Path) -> None:
    answer = await send(http, kb, said("metadata", "[]"), file("a.txt", b"one"), file("b.txt", b"two"))
    assert outcomes(answer) == [("a.txt", 400, "invalid_metadata"), ("b.txt", 400, "invalid_metadata")]
    assert stored_files(store_dir) == []


async def test_a_form_that_breaks_off_ends_the_list(http: httpx.AsyncClient, kb: str, store_dir: Path) -> None:
    two = file("a.txt", b"one") + file("b.txt", b"two")
    url = f"/knowledge-bases/{kb}/documents"
    inside = await http.post(url, content=two + file("c.txt", b"three")[:-5], headers=FORM)
    assert outcomes(inside) == [
        ("a.txt", 202, None),
        ("b.txt", 202, None),
        ("c.txt", 400, "malformed_multipart"),
    ]
    between = await http.post(url, content=two + b"--b\r\nContent-Dis", headers=FORM)
    assert outcomes(between) == [
        ("a.txt", 200, None),
        ("b.txt", 200, None),
        (None, 400, "malformed_multipart"),
    ]
    assert contents(store_dir) == [b"one", b"two"]


async def test_files_of_one_name_are_revisions_of_one_document(http: httpx.AsyncClient, kb: str) -> None:
    answer = await send(http, kb, file("a.txt", b"one"), file("a.txt", b"two"))
    assert [item["document"]["revision"] for item in answer.json()["items"]] == [1, 2]


async def test_a_form_repeated_under_its_key_doubles_nothing(
    http: httpx.AsyncClient, kb: str, pool: Pool, store_dir: Path
) -> None:
    key = {"Idempotency-Key": "k" * 255}
    one, two = file("a.txt", b"one"), file("a.txt", b"two")
    first = await send(http, kb, one, two, headers=key)
    again = await asyncio.gather(*(send(http, kb, one, two, headers=key) for _ in range(3)))
    assert {answer.text for answer in again} == {first.text}
    assert outcomes(first) == [("a.txt", 202, None)] * 2
    changed = await send(http, kb, one, file("a.txt", b"other"), file("c.txt", b"three"), headers=key)
    assert outcomes(changed) == [
        ("a.txt", 202, None),
        ("a.txt", 409, "idempotency_key_reused"),
        ("c.txt", 202, None),
    ]
    assert await pool.fetchval("SELECT array_agg(revision ORDER BY filename) FROM documents") == [2, 1]


async def test_an_outage_ends_the_request_which_can_then_be_sent_again(
    http: httpx.AsyncClient, kb: str, store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = 0
    put = DirectoryStore.put

    async def failing(store: DirectoryStore, key: str, body: AsyncIterator[bytes]) -> None:
        nonlocal stored
        stored += 1
        if stored == 2:
            raise Unavailable("the disk is full", code="store_unavailable")
        await put(store, key, body)

    monkeypatch.setattr(DirectoryStore, "put", failing)
    files = file("a.txt", b"one"), file("b.txt", b"two"), file("c.txt", b"three")
    answer = await send(http, kb, *files)
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert contents(store_dir) == [b"one"]
    assert outcomes(await send(http, kb, *files)) == [
        ("a.txt", 200, None),
        ("b.txt", 202, None),
        ("c.txt", 202, None),
    ]


async def test_what_the_caller_may_not_write_in_is_refused_as_a_whole(
    http: httpx.AsyncClient, kb: str, store_dir: Path
) -> None:
    files = file("a.txt", b"one"), file("b.txt", b"two")
    theirs = await send(http, kb, *files, headers=bearer(BOB))
    missing = await send(http, str(uuid4()), *files)
    for answer in (theirs, missing):
        assert (answer.status_code, answer.json()["code"]) == (404, "knowledge_base_not_found")
    assert stored_files(store_dir) == []


@pytest.mark.parametrize("path", ["/knowledge-bases/{kb}/chunk", "/api/knowledge-base/upload"])
async def test_older_clients_may_send_several_files_too(http: httpx.AsyncClient, kb: str, path: str) -> None:
    answer = await http.post(
        path.format(kb=kb),
        files=[("file", ("a.txt", b"one")), ("file", ("b.txt", b"two"))],
        data={"category": "strategy", "metadata": json.dumps({"year": 2026})},
    )
    assert outcomes(answer) == [("a.txt", 202, None), ("b.txt", 202, None)]
    document = (await http.get(f"/documents/{answer.json()['items'][1]['document']['document_id']}")).json()
    assert (document["category"], document["metadata"]) == ("strategy", {"year": 2026})
