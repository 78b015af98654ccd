"""A document that is called off, at each stage of its processing."""

import asyncio
from uuid import UUID

import httpx

from kbmesh.postgres import Pool
from services.embedder.entrypoints.kafka import read_message
from services.embedder.handlers import give_up
from services.ingest.adapters.postgres import PostgresDocuments
from tests.support.documents import drafts, upload
from tests.support.pipeline import TOPICS, Pipeline, searchable, state, text


async def cancel(http: httpx.AsyncClient, document: str) -> None:
    answer = await http.post(f"/documents/{document}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, "failed"), answer.text
    assert answer.json()["error_code"] == "cancelled"


async def test_a_document_cancelled_before_extraction_is_not_extracted(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline
) -> None:
    document = await upload(http, kb, text("one"))
    await cancel(http, document)
    await cancel(http, document)
    await pipeline.run()
    assert await state(http, document) == ("failed", 1, None, 0)
    assert await pool.fetchval("SELECT count(*) FROM chunks") == 0


async def test_a_document_cancelled_during_extraction_gets_no_chunks(
    http: httpx.AsyncClient, kb: str, pool: Pool
) -> None:
    document = await upload(http, kb, text("one"))
    documents = PostgresDocuments(pool, TOPICS)
    claimed = await documents.begin(UUID(document), 1)
    assert claimed is not None
    await cancel(http, document)
    assert not await documents.save_chunks(claimed, drafts("one"))
    assert not await documents.fail(UUID(document), 1, "corrupt_file", "why")
    assert await documents.begin(UUID(document), 1) is None
    assert (await http.get(f"/documents/{document}")).json()["error_code"] == "cancelled"


async def test_a_document_cancelled_during_embedding_gets_no_vectors(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline
) -> None:
    document = await upload(http, kb, text(*map(str, range(40))))
    first, second = await pipeline.extract()
    await pipeline.embed([first])
    await cancel(http, document)

    await pipeline.embed([first, second])
    await give_up(read_message(second).source, store=pipeline.vectors)

    assert (await http.get(f"/documents/{document}")).json()["error_code"] == "cancelled"
    assert await state(http, document) == ("failed", 1, None, 0)
    assert await pool.fetchval("SELECT count(*) FROM chunks") == 0
    assert await searchable(pool, document) == []


async def test_cancelling_a_new_revision_keeps_the_old_one_in_search(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline
) -> None:
    document = await upload(http, kb, text("old"))
    await pipeline.run()
    await upload(http, kb, text("new"))
    messages = await pipeline.extract()
    await cancel(http, document)
    await pipeline.embed(messages)
    assert await state(http, document) == ("failed", 2, 1, 0)
    assert await searchable(pool, document) == [(1, "old")]


async def test_what_is_finished_cannot_be_cancelled(http: httpx.AsyncClient, kb: str, pipeline: Pipeline) -> None:
    document = await upload(http, kb, text("one"))
    await pipeline.run()
    answer = await http.post(f"/documents/{document}/cancel")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_in_progress")
    assert await state(http, document) == ("ready", 1, 1, 1)


async def test_cancelling_while_the_last_vector_is_stored_ends_in_one_of_two_states(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline
) -> None:
    document = await upload(http, kb, text("one"))
    messages = await pipeline.extract()
    answer, _ = await asyncio.gather(http.post(f"/documents/{document}/cancel"), pipeline.embed(messages))
    if answer.status_code == 200:
        assert await state(http, document) == ("failed", 1, None, 0)
        assert await searchable(pool, document) == []
    else:
        assert answer.json()["code"] == "not_in_progress"
        assert await state(http, document) == ("ready", 1, 1, 1)
        assert await searchable(pool, document) == [(1, "one")]
