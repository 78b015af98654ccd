"""Vectors computed anew from what is stored: gateway and embedder over the real tables, and no extractor."""

import asyncio
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from kbmesh.postgres import Pool
from services.embedder.domain.chunks import Source
from services.embedder.handlers import give_up
from services.ingest.domain.models import chunk_id
from tests.support.documents import upload
from tests.support.gateway import BOB, bearer, stored_files
from tests.support.pipeline import SPACE, Pipeline, searchable, state, text


async def rows(pool: Pool) -> tuple[int, int]:
    """Chunks and vectors."""
    return await pool.fetchval("SELECT count(*) FROM chunks"), await pool.fetchval(
        f"SELECT count(*) FROM {SPACE.table}"  # noqa: S608
    )


async def test_vectors_are_computed_anew_without_the_file(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline, store_dir: Path
) -> None:
    pipeline.extractor.headed = True
    document = await upload(http, kb, text("one", "two"))
    await pipeline.run()
    before = (await http.get(f"/documents/{document}/chunks")).json()["items"]
    read = sorted(pipeline.encoder.texts)
    pipeline.encoder.texts.clear()
    for file in stored_files(store_dir):
        file.unlink()

    answer = await http.post(f"/documents/{document}/reembed")

    assert (answer.status_code, answer.headers["location"]) == (202, f"/documents/{document}")
    now = answer.json()
    assert (now["revision"], now["status"], now["chunk_count"], now["embedded_count"]) == (2, "embedding", 2, 0)
    assert answer.headers["etag"] == (await http.get(f"/documents/{document}")).headers["etag"]
    assert await searchable(pool, document) == [(1, "one"), (1, "two")]
    await pipeline.run()
    assert sorted(pipeline.encoder.texts) == read
    assert await state(http, document) == ("ready", 2, 2, 2)
    assert await searchable(pool, document) == [(2, "one"), (2, "two")]
    assert (await http.get(f"/documents/{document}/chunks")).json()["items"] == [
        {**chunk, "id": str(chunk_id("document_chunk", document, 2, chunk["ordinal"])), "revision": 2}
        for chunk in before
    ]
    assert await rows(pool) == (2, 2)


async def test_clients_that_reembed_one_document_at_once_make_no_duplicates(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline
) -> None:
    document = await upload(http, kb, text("one", "two", "three"))
    await pipeline.run()
    answers = await asyncio.gather(*(http.post(f"/documents/{document}/reembed") for _ in range(4)))
    assert sorted(answer.json()["revision"] for answer in answers) == [2, 3, 4, 5]
    assert await rows(pool) == (6, 3)
    await pipeline.run()
    assert await state(http, document) == ("ready", 5, 5, 3)
    assert await rows(pool) == (3, 3)


async def test_what_the_model_failed_on_is_tried_again(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline
) -> None:
    document = await upload(http, kb, text("old"))
    await pipeline.run()
    await upload(http, kb, text("new", "old"))
    await pipeline.extract()
    source = await pool.fetchrow("SELECT kind, source_id, revision FROM chunks WHERE revision = 2")
    assert source is not None
    await give_up(Source(*source), store=pipeline.vectors)
    assert await state(http, document) == ("failed", 2, 1, 0)
    pipeline.encoder.texts.clear()

    await http.post(f"/documents/{document}/reembed")
    assert await searchable(pool, document) == [(1, "old")]
    await pipeline.run()

    assert sorted(pipeline.encoder.texts) == ["new", "old"]
    assert await state(http, document) == ("ready", 3, 3, 2)
    assert await searchable(pool, document) == [(3, "new"), (3, "old")]
    assert await rows(pool) == (2, 2)


@pytest.mark.parametrize("stage", ["pending", "empty", "cancelled"])
async def test_without_stored_text_there_is_nothing_to_embed(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline, stage: str
) -> None:
    document = await upload(http, kb, text("one"))
    if stage == "cancelled":
        await pipeline.extract()
        await http.post(f"/documents/{document}/cancel")
    if stage == "empty":
        await pool.execute("UPDATE documents SET status = 'empty', live_revision = 1")
    before = (await http.get(f"/documents/{document}")).json()

    answer = await http.post(f"/documents/{document}/reembed")

    assert (answer.status_code, answer.json()["code"]) == (409, "nothing_to_embed")
    assert (await http.get(f"/documents/{document}")).json() == before


async def test_an_upload_cancellation_or_deletion_ends_a_reembedding(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline
) -> None:
    uploaded, cancelled, deleted = [
        await upload(http, kb, text(name), name) for name in ("a.txt", "b.txt", "c.txt")
    ]
    await pipeline.run()
    for document in (uploaded, cancelled, deleted):
        await http.post(f"/documents/{document}/reembed")
    messages = await pipeline.extract()
    await upload(http, kb, text("newer"), "a.txt")
    assert (await http.post(f"/documents/{cancelled}/cancel")).json()["error_code"] == "cancelled"
    await http.delete(f"/documents/{deleted}")
    await pipeline.embed(messages)
    await pipeline.run()
    assert await state(http, uploaded) == ("ready", 3, 3, 1)
    assert await searchable(pool, uploaded) == [(3, "newer")]
    assert await state(http, cancelled) == ("failed", 2, 1, 0)
    assert await searchable(pool, cancelled) == [(1, "b.txt")]
    assert await rows(pool) == (2, 2)


async def test_a_knowledge_base_is_reembedded_but_for_documents_without_text(
    http: httpx.AsyncClient, kb: str, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.ingest.handlers.reembedding.BATCH", 2)
    documents = [await upload(http, kb, text(name), name) for name in ("a.txt", "b.txt", "c.txt", "d.txt")]
    other = (await http.post("/knowledge-bases", json={"name": "Other"})).json()["id"]
    untouched = await upload(http, other, text("f"))
    await pipeline.run()
    pending = await upload(http, kb, text("e"), "e.txt")

    answer = await http.post(f"/knowledge-bases/{kb}/reembed")

    assert (answer.status_code, answer.json()) == (202, {"documents": 4, "skipped": 1})
    assert answer.headers["location"] == f"/knowledge-bases/{kb}/documents"
    await pipeline.run()
    assert {await state(http, document) for document in documents} == {("ready", 2, 2, 1)}
    assert [(await state(http, document))[1] for document in (pending, untouched)] == [1, 1]


async def test_a_stranger_reembeds_nothing(http: httpx.AsyncClient, kb: str, pipeline: Pipeline) -> None:
    document = await upload(http, kb, text("one"))
    await pipeline.run()
    for path in (f"/documents/{document}", f"/documents/{uuid4()}", f"/knowledge-bases/{kb}"):
        assert (await http.post(f"{path}/reembed", headers=bearer(BOB))).status_code == 404
    assert await state(http, document) == ("ready", 1, 1, 1)
