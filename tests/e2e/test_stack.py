"""The whole stack as its users meet it: HTTP in, gRPC out, and processes that are killed in between."""

import asyncio
import os
import signal

import asyncpg
import httpx
import pytest
from fpdf import FPDF

from tests.e2e.conftest import World
from tests.support.documents import receipt

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]


def pdf(*pages: str) -> bytes:
    document = FPDF()
    document.set_font("helvetica", size=12)
    for text in pages:
        document.add_page()
        document.multi_cell(0, 8, text)
    return bytes(document.output())


async def test_a_passage_is_cited_with_its_page_and_its_place(world: World) -> None:
    kb = await world.create_kb()
    pages = (
        "The warehouse opens at seven in the morning and closes at six.",
        "Returned parcels are inspected by two people within three days of arrival.",
    )
    location = await world.upload(kb, "handbook.pdf", pdf(*pages), category="governance_policy")
    assert (await world.settled(location))["status"] == "ready"

    first = (await world.ask(kb, "Who checks parcels that come back?"))[0]

    assert "inspected by two people" in first.content
    assert first.label == "[UPLOADED DOCUMENT: handbook.pdf]"
    assert location == f"/documents/{first.document_id}"
    assert first.citation.char_end - first.citation.char_start == len(first.content)
    assert first.score.value == pytest.approx(
        first.score.relevance * first.score.tier_weight * first.score.freshness
    )


async def test_older_clients_and_language_models_need_nothing_but_http(world: World) -> None:
    uploaded = await world.http.post(
        "/api/knowledge-base/upload",
        files={"file": ("dock.txt", b"Dock nine is reserved for frozen goods.")},
        data={"category": "other"},
    )
    assert uploaded.status_code == 202, uploaded.text
    assert (await world.settled(uploaded.headers["location"]))["status"] == "ready"
    question = {"query": "Where do frozen goods arrive?", "kb_ids": [uploaded.json()["kb_id"]]}

    searched = (await world.http.post("/search", json=question)).json()
    called = (await world.http.post("/tools/kb_search", json=question)).json()

    assert not searched["degraded"]
    assert searched["passages"][0]["content"] == "Dock nine is reserved for frozen goods."
    assert called["passages"][0]["citation"]["filename"] == "dock.txt"
    assert (await world.http.delete("/api/knowledge-base")).json()["documents"] == 1


async def test_the_companys_own_fact_comes_before_a_benchmark_that_says_otherwise(world: World) -> None:
    kb = await world.create_kb()
    own = b"Customer churn at our company was 4.1 percent in the last quarter."
    other = b"Customer churn in the industry was 7.8 percent in the last quarter."
    for location in (
        await world.upload(kb, "industry.txt", other, source_priority="IndustryBenchmark"),
        await world.upload(kb, "dictionary.txt", own, category="data_dictionary"),
    ):
        assert (await world.settled(location))["status"] == "ready"

    passages = await world.ask(kb, "What was customer churn in the last quarter?")

    assert [passage.filename for passage in passages] == ["dictionary.txt", "industry.txt"]


async def test_a_bad_file_fails_with_a_reason_and_the_next_one_is_served(world: World) -> None:
    kb = await world.create_kb()
    torn = await world.upload(kb, "torn.pdf", b"%PDF-1.7\n" + os.urandom(5000))
    nul = await world.upload(kb, "nul.txt", b"The meter\x00 was read on Monday.\n")
    blank = await world.upload(kb, "blank.txt", b" \n\n ")

    failed, ready, empty = [await world.settled(location) for location in (torn, nul, blank)]

    assert (failed["status"], failed["error_code"]) == ("failed", "corrupt_file")
    assert failed["error_detail"]
    assert ready["status"] == "ready"
    assert empty["status"] == "empty"
    assert (await world.ask(kb, "When was the meter read?"))[0].content == "The meter was read on Monday."


async def test_search_sees_the_old_revision_or_the_new_one_and_never_none(world: World) -> None:
    kb = await world.create_kb()
    location = await world.upload(kb, "price.txt", b"The price of the standard plan is ten euros.")
    await world.settled(location)

    seen: set[tuple[str, ...]] = set()
    await world.upload(kb, "price.txt", b"The price of the standard plan is twelve euros.")
    async with asyncio.timeout(60):
        while True:
            contents = tuple(p.content for p in await world.ask(kb, "What does the standard plan cost?"))
            seen.add(contents)
            if "twelve" in contents[0]:
                break

    assert seen <= {
        ("The price of the standard plan is ten euros.",),
        ("The price of the standard plan is twelve euros.",),
    }
    assert (await world.http.get(location)).json()["live_revision"] == 2


async def test_a_deleted_document_is_gone_from_search(world: World) -> None:
    kb = await world.create_kb()
    location = await world.upload(kb, "secret.txt", b"The code name of the project is Heron.")
    await world.settled(location)
    assert await world.ask(kb, "What is the code name?")

    removed = (await world.http.delete(location)).json()

    assert removed == receipt(documents=1, chunks=1, vectors=1, objects=1)
    assert await world.ask(kb, "What is the code name?") == []


async def test_skills_are_embedded_like_everything_else(world: World) -> None:
    connection = await asyncpg.connect(world.addresses.postgres_dsn)
    try:
        async with asyncio.timeout(60):
            while not await connection.fetchval(
                """SELECT count(*) > 0 AND bool_and(embedded_count = chunk_count)
                   FROM records WHERE kind = 'skill_chunk'"""
            ):
                await asyncio.sleep(0.1)
    finally:
        await connection.close()


async def test_killed_processes_lose_and_double_nothing(world: World) -> None:
    kb = await world.create_kb()
    locations = []
    for n in range(24):
        if n in (6, 12, 18):
            os.kill(world.pid("embedder" if n == 12 else "ingest"), signal.SIGKILL)
        locations.append(await upload_through_restarts(world, kb, n))

    documents = [await world.settled(location) for location in locations]

    assert {document["status"] for document in documents} == {"ready"}
    connection = await asyncpg.connect(world.addresses.postgres_dsn)
    try:
        vectors = await connection.fetchval(
            "SELECT count(*) FROM vectors_all_minilm_l6_v2_384 WHERE live AND kb_id = $1",
            kb,
        )
        chunks = await connection.fetchval("SELECT count(*) FROM chunks WHERE kb_id = $1 AND live", kb)
    finally:
        await connection.close()
    assert vectors == chunks == sum(int(str(document["chunk_count"])) for document in documents)


async def upload_through_restarts(world: World, kb: str, n: int) -> str:
    """As a client does: again, until the gateway has said yes."""
    data = f"Station {n} lies {n * 7 + 3} kilometres from the depot.".encode()
    async with asyncio.timeout(120):
        while True:
            try:
                answer = await world.http.post(
                    f"/knowledge-bases/{kb}/documents", params={"filename": f"station-{n}.txt"}, content=data
                )
            except httpx.TransportError:
                await asyncio.sleep(0.2)
                continue
            if answer.status_code in (200, 202):
                return answer.headers["location"]
            await asyncio.sleep(0.2)
