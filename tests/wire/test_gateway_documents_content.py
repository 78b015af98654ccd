"""What is in a document, over HTTP."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote
from uuid import UUID, uuid4

import httpx
import pytest

from kbmesh.http import HttpSettings, serve_http
from kbmesh.messaging import Topics
from kbmesh.postgres import Pool
from services.ingest.adapters.directory import DirectoryStore
from services.ingest.entrypoints.http import create_app
from tests.support.documents import drafts, extract, upload
from tests.support.gateway import ALICE, BOB, bearer, make_gateway, stored_files

TEXT = b"Gro\xdfe Zahlen, in Latin-1.\n" * 20_000


async def test_the_original_comes_back_as_it_was_uploaded(http: httpx.AsyncClient, kb: str) -> None:
    document = await upload(http, kb, TEXT)

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
    document = await upload(http, kb, TEXT, name)
    stored = (await http.get(f"/documents/{document}")).json()["filename"]

    disposition = (await http.get(f"/documents/{document}/content")).headers["content-disposition"]

    plain, encoded = disposition.removeprefix('attachment; filename="').split("\"; filename*=UTF-8''")
    assert unquote(encoded) == stored
    assert '"' not in plain + encoded
    assert plain.isascii()


async def test_bytes_that_the_caller_has_are_not_sent_again(http: httpx.AsyncClient, kb: str) -> None:
    document = await upload(http, kb, TEXT)
    etag = (await http.get(f"/documents/{document}/content")).headers["etag"]

    again = await http.get(f"/documents/{document}/content", headers={"If-None-Match": f'"other", {etag}'})

    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)


async def test_a_stranger_downloads_nothing(http: httpx.AsyncClient, kb: str) -> None:
    document = await upload(http, kb, TEXT)
    theirs = await http.get(f"/documents/{document}/content", headers=bearer(BOB))
    missing = await http.get(f"/documents/{uuid4()}/content", headers=bearer(BOB))
    assert theirs.status_code == missing.status_code == 404
    assert theirs.json()["code"] == missing.json()["code"] == "document_not_found"


async def test_a_file_that_is_gone_is_a_problem_and_not_half_an_answer(
    http: httpx.AsyncClient, kb: str, store_dir: Path
) -> None:
    document = await upload(http, kb, TEXT)
    [stored] = stored_files(store_dir)
    stored.unlink()
    answer = await http.get(f"/documents/{document}/content")
    assert (answer.status_code, answer.json()["code"]) == (404, "object_missing")


class StalledStore(DirectoryStore):
    """Gives the first byte of an object and then nothing, until the reader goes away."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.closed = asyncio.Event()

    async def read(self, key: str) -> AsyncGenerator[bytes, None]:
        try:
            yield b"x"
            await asyncio.Event().wait()
        finally:
            self.closed.set()


async def test_a_client_that_goes_away_frees_the_object(pool: Pool, store_dir: Path) -> None:
    store = StalledStore(store_dir)
    app = create_app(replace(make_gateway(pool, store_dir, Topics("kbmesh")), store=store))
    async with (
        serve_http(app, HttpSettings(stop_grace_s=5)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=bearer(ALICE)) as client,
    ):
        kb = (await client.post("/knowledge-bases", json={"name": "Finance"})).json()["id"]
        document = await upload(client, kb, TEXT)
        async with client.stream("GET", f"/documents/{document}/content") as answer:
            assert await anext(answer.aiter_raw()) == b"x"
            assert not store.closed.is_set()
        await asyncio.wait_for(store.closed.wait(), 10)


async def test_chunks_are_listed_page_by_page_with_their_place(
    http: httpx.AsyncClient, kb: str, pool: Pool
) -> None:
    document = await upload(http, kb, TEXT)
    await extract(pool, document, 1, drafts("one", "two", "three"))

    first = (await http.get(f"/documents/{document}/chunks", params={"limit": 2})).json()
    second = (
        await http.get(f"/documents/{document}/chunks", params={"limit": 2, "after": first["next_after"]})
    ).json()

    assert [item["content"] for page in (first, second) for item in page["items"]] == ["one", "two", "three"]
    assert second["next_after"] is None
    shown = {**first["items"][1]}
    UUID(shown.pop("id"))
    assert shown == {
        "revision": 1,
        "ordinal": 1,
        "content": "two",
        "page": 1,
        "headings": ["Heading"],
        "char_start": 0,
        "char_end": 3,
        "token_count": 3,
        "tier": "CustomerFact",
    }


async def test_only_chunks_that_search_sees_are_listed(http: httpx.AsyncClient, kb: str, pool: Pool) -> None:
    document = await upload(http, kb, TEXT)
    assert (await http.get(f"/documents/{document}/chunks")).json() == {"items": [], "next_after": None}
    await extract(pool, document, 1, drafts("old"))
    await upload(http, kb, TEXT + b"more")
    await extract(pool, document, 2, drafts("new"))

    listed = (await http.get(f"/documents/{document}/chunks")).json()["items"]

    assert [(item["revision"], item["content"]) for item in listed] == [(1, "old")]
    stranger = await http.get(f"/documents/{document}/chunks", headers=bearer(BOB))
    assert (stranger.status_code, stranger.json()["code"]) == (404, "document_not_found")


async def test_documents_are_listed_by_state_category_and_name(
    http: httpx.AsyncClient, kb: str, pool: Pool
) -> None:
    names = ["Plan 2026.txt", "plan_2027.txt", "100%.txt", "other.txt"]
    ids = [await upload(http, kb, TEXT, name) for name in names]
    await extract(pool, ids[1], 1, drafts("one"))
    await pool.execute("UPDATE documents SET category = 'strategy' WHERE id = $1", UUID(ids[0]))

    async def listed(**params: str | int) -> list[str]:
        page = (await http.get(f"/knowledge-bases/{kb}/documents", params=params)).json()
        return [item["filename"] for item in page["items"]]

    assert await listed(status="embedding") == names[1:2]
    assert await listed(category="strategy") == names[:1]
    assert await listed(filename="PLAN") == names[:2]
    assert await listed(filename="%") == names[2:3]
    assert await listed(filename="plan", status="pending", category="strategy") == names[:1]
    assert await listed(filename="plan", after=ids[0], limit=1) == names[1:2]
    assert (await http.get(f"/knowledge-bases/{kb}/documents", params={"filename": "\0"})).status_code == 422
    assert (await http.get(f"/knowledge-bases/{kb}/documents", params={"status": "gone"})).status_code == 422


async def test_a_knowledge_base_says_what_it_holds(http: httpx.AsyncClient, kb: str, pool: Pool) -> None:
    ids = [await upload(http, kb, TEXT, f"{n}.txt") for n in range(3)]
    await pool.execute("UPDATE documents SET status = 'ready' WHERE id = $1", UUID(ids[0]))
    await pool.execute("UPDATE documents SET status = 'failed', error_code = 'x' WHERE id = $1", UUID(ids[1]))

    shown = (await http.get(f"/knowledge-bases/{kb}")).json()

    assert (shown["document_count"], shown["size_bytes"]) == (3, 3 * len(TEXT))
    assert (shown["ready_count"], shown["failed_count"]) == (1, 1)
