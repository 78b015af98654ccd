"""What a deletion says it took away, and what it finds when it looks again."""

import asyncio
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from kbmesh.errors import Unavailable
from kbmesh.postgres import Pool
from services.ingest.adapters.directory import DirectoryStore
from tests.support.documents import receipt, upload
from tests.support.gateway import ALICE, bearer, client_of, make_gateway, stored_files
from tests.support.pipeline import SPACE, TOPICS, Pipeline, text

STORED = f"SELECT (SELECT count(*) FROM documents) + (SELECT count(*) FROM chunks) + (SELECT count(*) FROM {SPACE.table})"  # noqa: E501, S608


class RefusingStore(DirectoryStore):
    async def delete(self, key: str) -> None:
        raise Unavailable("the store is down", code="store_unavailable")


class KeepingStore(DirectoryStore):
    """Says that it has removed what it keeps."""

    async def delete(self, key: str) -> None:
        return


async def second_space(pool: Pool, *, cascades: bool) -> None:
    """Another embedding space, with a vector for each chunk."""
    reference = "REFERENCES chunks ON DELETE CASCADE" if cascades else ""
    await pool.execute(f"CREATE TABLE vectors_t (chunk_id uuid {reference})")
    await pool.execute("INSERT INTO vectors_t SELECT id FROM chunks")
    await pool.execute("INSERT INTO embedding_spaces VALUES ('t', 'model', 3, 'building', 'vectors_t')")


async def test_messages_that_were_fenced_off_write_nothing_when_they_arrive(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline, store_dir: Path
) -> None:
    document = await upload(http, kb, text(*(f"paragraph {n}" for n in range(70))))
    of_chunks = await pipeline.extract()
    await pipeline.embed(of_chunks[:1])
    of_documents = await pipeline.sent(TOPICS.documents)
    pipeline.encoder.texts.clear()

    removed = (await http.delete(f"/documents/{document}")).json()
    await pipeline.handle(of_documents)
    await pipeline.embed(of_chunks)
    await pipeline.run()

    assert removed == receipt(
        documents=1, chunks=70, vectors=32, objects=1, documents_in_progress=1, messages_fenced=len(of_chunks) + 1
    )
    assert len(of_chunks) == 3
    assert await pool.fetchval(STORED) == 0
    assert pipeline.encoder.texts == []
    assert stored_files(store_dir) == []


async def test_a_base_deleted_while_it_is_worked_on_is_verified_empty(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline, store_dir: Path
) -> None:
    for n in range(3):
        await upload(http, kb, text("one", "two", "three"), f"{n}.txt")
    of_chunks = await pipeline.extract()
    for n in range(3, 6):
        await upload(http, kb, text("one", "two", "three"), f"{n}.txt")
    of_documents = (await pipeline.sent(TOPICS.documents))[3:]

    answer, *_ = await asyncio.gather(
        http.delete(f"/knowledge-bases/{kb}"), pipeline.embed(of_chunks), pipeline.handle(of_documents)
    )

    assert (answer.json()["documents"], answer.json()["verified"]) == (6, True)
    await pipeline.run()
    assert await pool.fetchval(STORED) == 0
    assert stored_files(store_dir) == []


async def test_messages_that_were_sent_are_told_by_their_documents(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline
) -> None:
    ready = await upload(http, kb, text("one"), "ready.txt")
    await pipeline.run()
    await upload(http, kb, text("two"), "pending.txt")
    await pool.execute("UPDATE outbox SET published_at = now()")

    removed = (await http.delete(f"/knowledge-bases/{kb}")).json()

    assert removed == receipt(documents=2, chunks=1, vectors=1, objects=2, documents_in_progress=1)
    assert (await http.get(f"/documents/{ready}")).status_code == 404


async def test_vectors_of_every_embedding_space_are_counted(
    http: httpx.AsyncClient, pool: Pool, pipeline: Pipeline
) -> None:
    await http.post("/api/knowledge-base/upload", params={"filename": "a.txt"}, content=text("one", "two"))
    await pipeline.run()
    await second_space(pool, cascades=True)
    await pool.execute("UPDATE outbox SET published_at = now()")

    removed = (await http.delete("/api/knowledge-base")).json()

    assert removed == receipt(documents=1, chunks=2, vectors=4, objects=1)


async def test_vectors_left_behind_are_found(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.ingest.adapters.postgres.removal.LOOK_BATCH", 2)
    document = await upload(http, kb, text("one", "two", "three", "four", "five"))
    await upload(http, kb, text("another"), "another.txt")
    await pipeline.run()
    await second_space(pool, cascades=False)

    removed = (await http.delete(f"/documents/{document}")).json()

    assert (removed["left"], removed["verified"]) == ({"documents": 0, "chunks": 0, "vectors": 5}, False)


async def test_a_database_that_does_not_answer_afterwards_leaves_the_receipt_unverified(
    http: httpx.AsyncClient, kb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.ingest.adapters.postgres.removal.LOOK_S", 0)
    document = await upload(http, kb, text("one"))

    answer = await http.delete(f"/documents/{document}")

    assert (answer.status_code, answer.json()["left"], answer.json()["verified"]) == (200, None, False)
    assert (await http.get(f"/documents/{document}")).status_code == 404


async def test_objects_of_a_store_that_does_not_answer_are_pending_until_their_message_is_handled(
    pool: Pool, pipeline: Pipeline, store_dir: Path
) -> None:
    gateway = replace(make_gateway(pool, store_dir, TOPICS), store=RefusingStore(store_dir))
    async with client_of(gateway) as http:
        http.headers.update(bearer(ALICE))
        kb = (await http.post("/knowledge-bases", json={"name": "Finance"})).json()["id"]
        for n in range(10):
            await upload(http, kb, text("one"), f"{n}.txt")
        removed = (await http.delete(f"/knowledge-bases/{kb}")).json()

    assert (removed["objects"], removed["objects_pending"], removed["verified"]) == (10, 10, False)
    assert len(stored_files(store_dir)) == 10
    await pipeline.run()
    assert stored_files(store_dir) == []


async def test_an_object_that_survives_its_removal_is_found(pool: Pool, store_dir: Path) -> None:
    gateway = replace(make_gateway(pool, store_dir, TOPICS), store=KeepingStore(store_dir))
    async with client_of(gateway) as http:
        http.headers.update(bearer(ALICE))
        await http.post("/api/knowledge-base/upload", params={"filename": "a.txt"}, content=b"text")
        removed = (await http.delete("/api/knowledge-base")).json()

    assert (removed["objects_left"], removed["objects_pending"], removed["verified"]) == (1, 0, False)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_files_of_earlier_revisions_go_without_waiting_for_their_message(
    http: httpx.AsyncClient, kb: str, store_dir: Path, cancelled: bool
) -> None:
    document = await upload(http, kb, text("one"))
    for words in ("two", "three"):
        await upload(http, kb, text(words))
    assert len(stored_files(store_dir)) == 3
    if cancelled:
        await http.post(f"/documents/{document}/cancel")

    removed = (await http.delete(f"/documents/{document}")).json()

    assert (removed["objects"], removed["verified"]) == (1, True)
    assert stored_files(store_dir) == []
