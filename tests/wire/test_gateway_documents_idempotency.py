"""Uploads that are repeated under the same Idempotency-Key."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from kbmesh.postgres import Pool
from services.ingest.entrypoints.http import Gateway
from tests.support.gateway import ALICE, BOB, TEAM, bearer, client_of, stored_files

TEXT = b"Revenue is booked on delivery.\n"


@pytest.fixture
async def http(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(gateway) as client:
        client.headers.update(bearer(ALICE, teams=(TEAM,), roles=("editor",)))
        yield client


@pytest.fixture
async def kb(http: httpx.AsyncClient) -> str:
    created = await http.post("/knowledge-bases", json={"name": "KB", "owner_type": "team", "owner_id": str(TEAM)})
    kb_id: str = created.json()["id"]
    return kb_id


async def upload(
    http: httpx.AsyncClient, kb: str, key: str | None, data: bytes = TEXT, filename: str = "a.txt", **params: str
) -> httpx.Response:
    return await http.post(
        f"/knowledge-bases/{kb}/documents",
        params={"filename": filename, **params},
        content=data,
        headers={} if key is None else {"Idempotency-Key": key},
    )


async def test_a_repeated_upload_is_answered_as_before(
    http: httpx.AsyncClient, kb: str, pool: Pool, store_dir: Path
) -> None:
    first = await upload(http, kb, "one")
    again = await upload(http, kb, "one")

    assert (again.status_code, again.json()) == (first.status_code, first.json()) == (202, first.json())
    assert again.headers["location"] == first.headers["location"]
    assert len(stored_files(store_dir)) == 1
    assert await pool.fetchval("SELECT count(*) FROM outbox WHERE topic = 'kbmesh.documents.v1'") == 1


async def test_a_late_repetition_does_not_bring_back_an_old_revision(
    http: httpx.AsyncClient, kb: str, store_dir: Path
) -> None:
    first = await upload(http, kb, "one")
    await upload(http, kb, "two", b"newer")

    late = await upload(http, kb, "one")

    assert (late.status_code, late.json()["revision"]) == (202, 1)
    document = (await http.get(first.headers["location"])).json()
    assert (document["revision"], document["size_bytes"]) == (2, len(b"newer"))
    assert b"newer" in [file.read_bytes() for file in stored_files(store_dir)]
    assert (await http.get(f"{first.headers['location']}/content")).content == b"newer"


async def test_an_unchanged_upload_is_repeated_as_unchanged(http: httpx.AsyncClient, kb: str) -> None:
    await upload(http, kb, None)
    answers = [await upload(http, kb, "one") for _ in range(2)]
    assert [(answer.status_code, answer.json()["unchanged"]) for answer in answers] == [(200, True)] * 2


async def test_uploads_of_one_key_at_once_make_one_revision(
    http: httpx.AsyncClient, kb: str, store_dir: Path
) -> None:
    await upload(http, kb, None, b"older")

    answers = await asyncio.gather(*(upload(http, kb, "one") for _ in range(6)))

    assert {(answer.status_code, answer.json()["revision"]) for answer in answers} == {(202, 2)}
    assert len(stored_files(store_dir)) == 2  # the relay would have the older one removed


@pytest.mark.parametrize(
    "other",
    [{"filename": "b.txt"}, {"data": b"other bytes"}, {"category": "strategy"}],
    ids=lambda other: next(iter(other)),
)
async def test_a_key_that_comes_with_another_upload_is_refused(
    http: httpx.AsyncClient, kb: str, store_dir: Path, other: dict[str, str]
) -> None:
    await upload(http, kb, "one")
    answer = await upload(http, kb, "one", **other)  # type: ignore[arg-type]  # one of them is bytes
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_key_reused")
    assert [file.read_bytes() for file in stored_files(store_dir)] == [TEXT]


async def test_a_key_that_comes_with_another_knowledge_base_is_refused(http: httpx.AsyncClient, kb: str) -> None:
    await upload(http, kb, "one")
    other = (await http.post("/knowledge-bases", json={"name": "Other"})).json()["id"]
    assert (await upload(http, other, "one")).json()["code"] == "idempotency_key_reused"


async def test_keys_of_two_callers_have_nothing_to_do_with_each_other(http: httpx.AsyncClient, kb: str) -> None:
    await upload(http, kb, "one")
    http.headers.update(bearer(BOB, teams=(TEAM,), roles=("editor",)))
    theirs = await upload(http, kb, "one", b"other bytes")
    assert (theirs.status_code, theirs.json()["revision"]) == (202, 2)


async def test_a_key_is_forgotten_after_a_day(http: httpx.AsyncClient, kb: str, pool: Pool) -> None:
    await upload(http, kb, "one")
    await upload(http, kb, "two", filename="b.txt")
    await pool.execute("UPDATE idempotency_keys SET created_at = now() - interval '24 hours'")
    answer = await upload(http, kb, "one", b"other bytes")
    assert (answer.status_code, answer.json()["revision"]) == (202, 2)
    assert await pool.fetchval("SELECT array_agg(key) FROM idempotency_keys") == ["one"]


async def test_a_repetition_does_not_bring_back_a_deleted_document(
    http: httpx.AsyncClient, kb: str, store_dir: Path
) -> None:
    first = await upload(http, kb, "one")
    await http.delete(first.headers["location"])
    answer = await upload(http, kb, "one")
    assert (answer.status_code, answer.json()["code"]) == (409, "document_deleted")
    assert stored_files(store_dir) == []


async def test_a_key_is_lost_with_its_right_to_see(http: httpx.AsyncClient, kb: str) -> None:
    await upload(http, kb, "one")
    http.headers.update(bearer(ALICE))
    assert (await upload(http, kb, "one")).status_code == 404


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\there"])
async def test_a_key_that_is_no_key_is_refused(http: httpx.AsyncClient, kb: str, key: str) -> None:
    answer = await upload(http, kb, key)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
