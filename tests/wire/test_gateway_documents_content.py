"""What is in a document, over HTTP."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import unquote
from uuid import UUID, uuid4

import httpx
import pytest

from kbmesh.messaging import Topics
from kbmesh.postgres import Pool
from tests.support.gateway import bearer, client_of, make_gateway, stored_files

ALICE, BOB = UUID(int=1), UUID(int=2)
TEXT = b"Gro\xdfe Zahlen, in Latin-1.\n" * 20_000


@pytest.fixture
def store_dir(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
async def http(pool: Pool, store_dir: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(make_gateway(pool, store_dir, Topics("kbmesh"))) as client:
        client.headers.update(bearer(ALICE))
        yield client


@pytest.fixture
async def kb(http: httpx.AsyncClient) -> str:
    created: dict[str, str] = (await http.post("/knowledge-bases", json={"name": "Finance"})).json()
    return created["id"]


async def upload(http: httpx.AsyncClient, kb: str, data: bytes = TEXT, filename: str = "policy.txt") -> str:
    answer = await http.post(f"/knowledge-bases/{kb}/documents", params={"filename": filename}, content=data)
    document: str = answer.json()["document_id"]
    return document


async def test_the_original_comes_back_as_it_was_uploaded(http: httpx.AsyncClient, kb: str) -> None:
    document = await upload(http, kb)

    answer = await http.get(f"/documents/{document}/content")

    assert (answer.status_code, answer.content) == (200, TEXT)
    assert answer.headers["content-type"] == "text/plain"
    assert answer.headers["content-length"] == str(len(TEXT))
    assert answer.headers["etag"] == f'"{hashlib.sha256(TEXT).hexdigest()}"'
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_page_is_never_shown_in_the_browser(http: httpx.AsyncClient, kb: str) -> None:
    document = await upload(http, kb, b"<!doctype html><html><body><script>1</script></body></html>", "a.html")
    answer = await http.get(f"/documents/{document}/content")
    assert answer.headers["content-disposition"].startswith("attachment;")


@pytest.mark.parametrize(
    "name", ['a";x="b.txt', "Größe 尺寸 🙂.txt", "100%; x=y.txt", "it's 'quoted'.txt", '\\".txt']
)
async def test_odd_names_cannot_break_the_header(http: httpx.AsyncClient, kb: str, name: str) -> None:
    document = await upload(http, kb, filename=name)
    stored = (await http.get(f"/documents/{document}")).json()["filename"]

    disposition = (await http.get(f"/documents/{document}/content")).headers["content-disposition"]

    plain, encoded = disposition.removeprefix('attachment; filename="').split("\"; filename*=UTF-8''")
    assert unquote(encoded) == stored
    assert '"' not in plain + encoded
    assert plain.isascii()


async def test_bytes_that_the_caller_has_are_not_sent_again(http: httpx.AsyncClient, kb: str) -> None:
    document = await upload(http, kb)
    etag = (await http.get(f"/documents/{document}/content")).headers["etag"]

    again = await http.get(f"/documents/{document}/content", headers={"If-None-Match": f'"other", {etag}'})

    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)


async def test_a_stranger_downloads_nothing(http: httpx.AsyncClient, kb: str) -> None:
    document = await upload(http, kb)
    theirs = await http.get(f"/documents/{document}/content", headers=bearer(BOB))
    missing = await http.get(f"/documents/{uuid4()}/content", headers=bearer(BOB))
    assert theirs.status_code == missing.status_code == 404
    assert theirs.json()["code"] == missing.json()["code"] == "document_not_found"


async def test_a_file_that_is_gone_is_a_problem_and_not_half_an_answer(
    http: httpx.AsyncClient, kb: str, store_dir: Path
) -> None:
    document = await upload(http, kb)
    [stored] = stored_files(store_dir)
    stored.unlink()
    answer = await http.get(f"/documents/{document}/content")
    assert (answer.status_code, answer.json()["code"]) == (404, "object_missing")
