"""What a caller notes on a document."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from kbmesh.postgres import Pool
from tests.support.documents import drafts, extract
from tests.support.gateway import stored_files

NOTED: dict[str, Any] = {
    "owner": "Finance 🙂",
    "year": 2026,
    "share": 0.5,
    "least": 5e-324,
    "audited": True,
    "until": None,
    "tags": ["a", "b"],
}


async def upload(
    http: httpx.AsyncClient,
    kb: str,
    metadata: dict[str, Any] | None,
    data: bytes = b"text",
    filename: str = "a.txt",
    key: str | None = None,
) -> httpx.Response:
    params = {"filename": filename} | ({} if metadata is None else {"metadata": json.dumps(metadata)})
    headers = {} if key is None else {"Idempotency-Key": key}
    return await http.post(f"/knowledge-bases/{kb}/documents", params=params, content=data, headers=headers)


@pytest.mark.parametrize("form", [False, True])
async def test_metadata_is_shown_wherever_its_document_is(http: httpx.AsyncClient, kb: str, form: bool) -> None:
    if form:
        answer = await http.post(
            f"/knowledge-bases/{kb}/documents",
            files={"file": ("a.txt", b"text")},
            data={"metadata": json.dumps(NOTED)},
        )
    else:
        answer = await upload(http, kb, NOTED)

    assert answer.status_code == 202, answer.text
    location = answer.headers["location"]
    [listed] = (await http.get(f"/knowledge-bases/{kb}/documents")).json()["items"]
    reprocessed = (await http.post(f"{location}/reprocess")).json()
    shown = (await http.get(location)).json()
    assert [found["metadata"] for found in (answer.json(), listed, reprocessed, shown)] == [NOTED] * 4


async def test_a_document_without_metadata_has_an_empty_object(http: httpx.AsyncClient, kb: str) -> None:
    answer = await upload(http, kb, None)
    assert (await http.get(answer.headers["location"])).json()["metadata"] == answer.json()["metadata"] == {}


@pytest.mark.parametrize("metadata", [{"year": 2027}, None])
async def test_a_new_revision_replaces_the_metadata(
    http: httpx.AsyncClient, kb: str, metadata: dict[str, Any] | None
) -> None:
    await upload(http, kb, NOTED)
    answer = await upload(http, kb, metadata, b"newer")
    assert (answer.status_code, answer.json()["revision"]) == (202, 2)
    assert (await http.get(answer.headers["location"])).json()["metadata"] == (metadata or {})


@pytest.mark.parametrize("metadata", [{"year": 2027}, None])
async def test_the_same_bytes_with_other_metadata_change_the_metadata_alone(
    http: httpx.AsyncClient, kb: str, pool: Pool, store_dir: Path, metadata: dict[str, Any] | None
) -> None:
    location = (await upload(http, kb, NOTED)).headers["location"]
    await extract(pool, location.removeprefix("/documents/"), 1, drafts("one"))
    before = await http.get(location)

    answer = await upload(http, kb, metadata)

    after = await http.get(location)
    assert (answer.status_code, answer.json()["unchanged"]) == (200, True)
    assert answer.json()["metadata"] == (metadata or {})
    assert answer.headers["etag"] == after.headers["etag"] != before.headers["etag"]
    changed = {"metadata": metadata or {}, "updated_at": after.json()["updated_at"]}
    assert after.json() == before.json() | changed
    assert len(stored_files(store_dir)) == 1
    assert await pool.fetchval("SELECT count(*) FROM outbox WHERE topic = 'kbmesh.documents.v1'") == 1


async def test_the_same_metadata_again_leaves_the_document_as_it_is(http: httpx.AsyncClient, kb: str) -> None:
    first = await upload(http, kb, NOTED)
    again = await upload(http, kb, dict(reversed(NOTED.items())))
    assert (again.status_code, again.headers["etag"]) == (200, first.headers["etag"])


async def test_an_idempotency_key_holds_for_the_metadata_too(http: httpx.AsyncClient, kb: str) -> None:
    first = await upload(http, kb, NOTED, key="one")
    location = first.headers["location"]
    await upload(http, kb, {"year": 2027})

    again = await upload(http, kb, NOTED, key="one")
    other = await upload(http, kb, {"year": 2028}, key="one")

    assert (again.status_code, again.json()) == (202, first.json())
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")
    assert (await http.get(location)).json()["metadata"] == {"year": 2027}


@pytest.mark.parametrize("text", ["nonsense", "[" * 10_000, '{"a": "\\u0000"}', '{"a": NaN}', '{"a": {}}'])
async def test_bad_metadata_is_refused_and_leaves_nothing(
    http: httpx.AsyncClient, kb: str, pool: Pool, store_dir: Path, text: str
) -> None:
    url = f"/knowledge-bases/{kb}/documents"
    raw = await http.post(url, params={"filename": "a.txt", "metadata": text}, content=b"text")
    form = await http.post(url, files={"file": ("a.txt", b"text")}, data={"metadata": text})
    listed = await http.get(url, params={"metadata": text})
    for answer in (raw, form, listed):
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_metadata")
    assert stored_files(store_dir) == []
    assert await pool.fetchval("SELECT count(*) FROM documents") == 0


async def test_documents_are_listed_by_their_metadata(http: httpx.AsyncClient, kb: str) -> None:
    await upload(http, kb, {"year": 2026, "tags": ["a", "b"]}, filename="a.txt")
    await upload(http, kb, {"year": 2026, "tags": ["b"]}, filename="b.txt")
    await upload(http, kb, None, filename="c.txt")

    async def named(metadata: dict[str, Any]) -> list[str]:
        answer = await http.get(f"/knowledge-bases/{kb}/documents", params={"metadata": json.dumps(metadata)})
        return [item["filename"] for item in answer.json()["items"]]

    assert await named({"year": 2026}) == ["a.txt", "b.txt"]
    assert await named({"year": 2026, "tags": ["a"]}) == ["a.txt"]
    assert await named({"tags": ["b", "a"]}) == ["a.txt"]
    assert await named({"year": "2026"}) == []
    assert await named({}) == ["a.txt", "b.txt", "c.txt"]
