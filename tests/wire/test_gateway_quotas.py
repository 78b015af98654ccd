"""What one owner may keep, over all its knowledge bases and under parallel uploads."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from kbmesh.messaging import Topics
from kbmesh.postgres import Pool
from services.ingest.domain.models import Quota
from tests.support.gateway import ALICE, TEAM, bearer, client_of, make_gateway, stored_files

EDITOR = bearer(ALICE, teams=(TEAM,), roles=("editor",))

Limited = Callable[[Quota], AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def limited(pool: Pool, tmp_path: Path) -> Limited:
    @asynccontextmanager
    async def client(quota: Quota) -> AsyncIterator[httpx.AsyncClient]:
        async with client_of(make_gateway(pool, tmp_path, Topics("kbmesh"), quota=quota)) as http:
            http.headers.update(EDITOR)
            yield http

    return client


async def create(http: httpx.AsyncClient, **body: object) -> str:
    created: dict[str, str] = (await http.post("/knowledge-bases", json={"name": "Finance", **body})).json()
    return created["id"]


async def upload(
    http: httpx.AsyncClient, kb: str, name: str, data: bytes, headers: dict[str, str] | None = None
) -> httpx.Response:
    path = f"/knowledge-bases/{kb}/documents"
    return await http.post(path, params={"filename": name}, content=data, headers=headers)


async def test_the_quota_of_documents_is_over_all_bases_of_an_owner_and_no_other(
    limited: Limited, tmp_path: Path
) -> None:
    async with limited(Quota(max_documents=2)) as http:
        first, second = await create(http), await create(http)
        team = await create(http, owner_type="team", owner_id=str(TEAM))
        accepted = [
            await upload(http, first, "a.txt", b"one"),
            await upload(http, second, "b.txt", b"two"),
            await upload(http, team, "c.txt", b"three"),
        ]
        refused = await upload(http, second, "d.txt", b"four")
        stored = stored_files(tmp_path)
        replaced = await upload(http, second, "b.txt", b"another two")
        await http.delete(accepted[0].headers["location"])
        after = await upload(http, second, "d.txt", b"four")

    assert [answer.status_code for answer in accepted] == [202, 202, 202]
    assert (refused.status_code, refused.json()["code"]) == (403, "quota_documents")
    assert "2 documents of at most 2" in refused.json()["detail"]
    assert len(stored) == 3
    assert (replaced.status_code, after.status_code) == (202, 202)


async def test_the_quota_of_bytes_counts_what_a_new_revision_adds(limited: Limited, pool: Pool) -> None:
    async with limited(Quota(max_bytes=100)) as http:
        kb = await create(http)
        answers = [
            await upload(http, kb, "a.txt", b"a" * 60),
            await upload(http, kb, "b.txt", b"b" * 41),
            await upload(http, kb, "a.txt", b"c" * 100),
            await upload(http, kb, "a.txt", b"d" * 101),
        ]
    async with limited(Quota(max_bytes=50)) as http:  # lowered: shrinking goes on
        shrunk = await upload(http, kb, "a.txt", b"e" * 99)
        grown = await upload(http, kb, "a.txt", b"f" * 100)

    assert [answer.status_code for answer in answers] == [202, 403, 202, 403]
    assert answers[1].json()["code"] == "quota_bytes"
    assert "101 bytes of at most 100" in answers[1].json()["detail"]
    assert (shrunk.status_code, grown.status_code) == (202, 403)
    assert await pool.fetchval("SELECT sum(size_bytes) FROM documents") == 99


async def test_parallel_uploads_do_not_pass_the_quota_together(limited: Limited, pool: Pool) -> None:
    async with limited(Quota(max_documents=3)) as http:
        bases = [await create(http) for _ in range(4)]
        answers = await asyncio.gather(
            *(upload(http, bases[n % 4], f"{n}.txt", f"text {n}".encode()) for n in range(12))
        )

    codes = sorted(answer.status_code for answer in answers)
    assert codes == [202] * 3 + [403] * 9
    assert await pool.fetchval("SELECT count(*) FROM documents") == 3


async def test_the_same_bytes_again_are_no_matter_for_the_quota(limited: Limited) -> None:
    async with limited(Quota(max_documents=1, max_bytes=3)) as http:
        kb = await create(http)
        answers = [await upload(http, kb, "a.txt", b"one") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [202, 200]
