"""Writes while knowledge bases are switched off, and uploads while nothing could embed them."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from kbmesh.errors import Unavailable
from kbmesh.messaging import Topics
from kbmesh.postgres import Pool
from kbmesh.rpc import ChannelSettings, open_channel
from services.embedder.domain.spaces import Space
from services.ingest.adapters import embedding
from services.ingest.adapters.embedding import EmbeddingHealth
from tests.support.gateway import ALICE, bearer, client_of, make_gateway, stored_files
from tests.support.rpc import answer as embed_answer
from tests.support.rpc import served
from tests.support.vectors import open_space

TYPES = "https://kbmesh.dev/problems/"


@pytest.fixture
async def http(pool: Pool, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    provider = EmbeddingHealth(pool, None, timeout_s=1)
    async with client_of(make_gateway(pool, tmp_path, Topics("kbmesh"), embedding=provider)) as client:
        client.headers.update(bearer(ALICE))
        yield client


async def create(http: httpx.AsyncClient) -> str:
    created: dict[str, str] = (await http.post("/knowledge-bases", json={"name": "Finance"})).json()
    return created["id"]


async def upload(http: httpx.AsyncClient, kb: str, data: bytes = b"Churn.") -> httpx.Response:
    return await http.post(f"/knowledge-bases/{kb}/documents", params={"filename": "a.txt"}, content=data)


async def test_switched_off_everything_is_read_and_nothing_changed(
    http: httpx.AsyncClient, pool: Pool, tmp_path: Path
) -> None:
    await open_space(pool, Space("test", 4))
    kb = await create(http)
    location = (await upload(http, kb)).headers["location"]
    await http.put("/channels/c/settings", json={"kb_ids": [kb]})
    reads = [f"/knowledge-bases/{kb}", "/knowledge-bases", f"/knowledge-bases/{kb}/documents", location]
    off = make_gateway(pool, tmp_path, Topics("kbmesh"), writable=False)

    async with client_of(off) as client:
        client.headers.update(bearer(ALICE))
        writes = [
            await client.post("/knowledge-bases", json={"name": "X"}),
            await client.patch(f"/knowledge-bases/{kb}", json={"name": "X"}),
            await client.delete(f"/knowledge-bases/{kb}"),
            await upload(client, kb, b"More."),
            await client.delete(location),
            await client.put("/channels/c/settings", json={"kb_ids": []}),
        ]
        unknown = await client.post("/knowledge-bases", json={"name": "X"}, headers={"Authorization": ""})
        read = [(await client.get(path)).status_code for path in [*reads, "/channels/c/settings"]]

    assert {answer.status_code for answer in writes} == {503}
    assert {answer.json()["code"] for answer in writes} == {"knowledge_bases_disabled"}
    assert {answer.json()["type"] for answer in writes} == {TYPES + "knowledge-bases-disabled"}
    assert unknown.status_code == 401
    assert read == [200] * 5


async def test_without_an_embedding_space_uploads_are_refused_and_the_rest_goes_on(
    http: httpx.AsyncClient, pool: Pool, tmp_path: Path
) -> None:
    kb = await create(http)

    refused = await upload(http, kb)
    stored = stored_files(tmp_path)
    listed = await http.get(f"/knowledge-bases/{kb}/documents")
    await open_space(pool, Space("test", 4))
    accepted = await upload(http, kb)

    assert (refused.status_code, refused.json()["code"]) == (503, "knowledge_base_unavailable")
    assert refused.json()["type"] == TYPES + "knowledge-base-unavailable"
    assert refused.headers["retry-after"]
    assert (stored, listed.json()["items"]) == ([], [])
    assert accepted.status_code == 202


async def test_uploads_follow_the_health_of_an_embedding_service_that_is_set(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "REMEMBERED_S", 0)
    await open_space(pool, Space("test", 4))
    async with (
        served(embed_answer) as (server, channel),
        client_of(
            make_gateway(pool, tmp_path, Topics("kbmesh"), embedding=EmbeddingHealth(pool, channel, timeout_s=5))
        ) as http,
    ):
        http.headers.update(bearer(ALICE))
        kb = await create(http)
        codes: list[int] = []
        for serving in (False, True, False):
            await server.set_serving(serving)
            codes.append((await upload(http, kb, f"Churn {len(codes)}.".encode())).status_code)

    assert codes == [503, 202, 503]


async def test_an_embedding_service_that_is_not_there_is_asked_once_for_many_uploads(pool: Pool) -> None:
    await open_space(pool, Space("test", 4))
    async with open_channel(ChannelSettings(target="127.0.0.1:1")) as channel:
        provider = EmbeddingHealth(pool, channel, timeout_s=0.5)
        asked_at = []
        for _ in range(3):
            with pytest.raises(Unavailable, match="does not answer"):
                await provider.require()
            asked_at.append(provider._asked_at)

    assert len(set(asked_at)) == 1
