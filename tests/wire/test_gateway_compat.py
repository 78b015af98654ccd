"""The routes of older clients."""

import asyncio
from pathlib import Path

import httpx

from kbmesh.postgres import Pool
from tests.support.documents import receipt
from tests.support.gateway import ALICE, BOB, bearer, stored_files


async def upload(http: httpx.AsyncClient, name: str, data: bytes = b"Churn.") -> httpx.Response:
    return await http.post(
        "/api/knowledge-base/upload", files={"file": (name, data)}, data={"category": "strategy"}
    )


async def test_a_chunk_upload_is_an_upload(http: httpx.AsyncClient) -> None:
    kb = (await http.post("/knowledge-bases", json={"name": "Finance"})).json()["id"]

    first, again = [
        await http.post(f"/knowledge-bases/{kb}/chunk", files={"file": ("a.txt", b"Churn.")}) for _ in range(2)
    ]
    stranger = await http.post(
        f"/knowledge-bases/{kb}/chunk", files={"file": ("a.txt", b"Churn.")}, headers=bearer(BOB)
    )

    assert (first.status_code, again.status_code) == (202, 200)
    assert (await http.get(first.headers["location"])).json()["kb_id"] == kb
    assert (stranger.status_code, stranger.json()["code"]) == (404, "knowledge_base_not_found")


async def test_the_default_knowledge_base_holds_what_older_clients_upload(
    http: httpx.AsyncClient, store_dir: Path
) -> None:
    before = await http.get("/api/knowledge-base")
    uploaded = await upload(http, "a.txt")
    await upload(http, "b.txt", b"More churn.")
    listed = (await http.get("/api/knowledge-base")).json()["items"]
    theirs = await http.get("/api/knowledge-base", headers=bearer(BOB))
    removed = await http.delete("/api/knowledge-base")
    bases = (await http.get("/knowledge-bases")).json()["items"]

    assert before.json() == theirs.json() == {"items": [], "next_after": None}
    assert uploaded.status_code == 202
    assert [(item["filename"], item["category"]) for item in listed] == [
        ("a.txt", "strategy"),
        ("b.txt", "strategy"),
    ]
    assert (removed.json()["documents"], removed.json()["objects"]) == (2, 2)
    assert (await http.get("/api/knowledge-base")).json()["items"] == []
    assert stored_files(store_dir) == []
    assert [base["id"] for base in bases] == [listed[0]["kb_id"]]


async def test_reading_and_clearing_make_no_knowledge_base(http: httpx.AsyncClient) -> None:
    await http.get("/api/knowledge-base")
    removed = await http.delete("/api/knowledge-base")

    assert removed.json() == receipt()
    assert (await http.get("/knowledge-bases")).json()["items"] == []


async def test_parallel_first_uploads_make_one_default_knowledge_base_for_each_user(
    http: httpx.AsyncClient, pool: Pool
) -> None:
    answers = await asyncio.gather(*(upload(http, f"{n}.txt", f"text {n}".encode()) for n in range(8)))
    await http.post(
        "/api/knowledge-base/upload", params={"filename": "b.txt"}, content=b"Bob.", headers=bearer(BOB)
    )

    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["kb_id"] for answer in answers}) == 1
    owners = await pool.fetch("SELECT owner_id FROM knowledge_bases WHERE is_default ORDER BY owner_id")
    assert [row["owner_id"] for row in owners] == [ALICE, BOB]


async def test_a_deleted_default_knowledge_base_is_made_anew(http: httpx.AsyncClient) -> None:
    first = (await upload(http, "a.txt")).json()["kb_id"]
    await http.delete(f"/knowledge-bases/{first}")

    second = await upload(http, "a.txt")

    assert second.status_code == 202
    assert second.json()["kb_id"] != first
