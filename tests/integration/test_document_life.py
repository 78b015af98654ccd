"""What happens to a document after its upload: gateway, extraction and embedding over the real tables."""

from pathlib import Path
from uuid import UUID, uuid4

import httpx
import pytest

from kbmesh.postgres import Pool
from tests.support.documents import upload
from tests.support.gateway import BOB, bearer, stored_files
from tests.support.pipeline import SPACE, Pipeline, searchable, state, text


async def vectors(pool: Pool, document: str) -> dict[str, list[float]]:
    rows = await pool.fetch(
        f"""SELECT c.content, v.embedding FROM chunks c JOIN {SPACE.table} v ON v.chunk_id = c.id
            WHERE c.document_id = $1""",  # noqa: S608
        UUID(document),
    )
    return {row["content"]: row["embedding"].to_list() for row in rows}


async def test_a_reprocessed_document_ends_as_a_new_revision_of_the_same_bytes(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline, store_dir: Path
) -> None:
    document = await upload(http, kb, text("one", "two"))
    await pipeline.run()

    answer = await http.post(f"/documents/{document}/reprocess")

    assert (answer.status_code, answer.headers["location"]) == (202, f"/documents/{document}")
    assert (answer.json()["revision"], answer.json()["status"]) == (2, "pending")
    assert await searchable(pool, document) == [(1, "one"), (1, "two")]
    await pipeline.run()
    assert await state(http, document) == ("ready", 2, 2, 2)
    assert await searchable(pool, document) == [(2, "one"), (2, "two")]
    assert [file.read_bytes() for file in stored_files(store_dir)] == [text("one", "two")]


async def test_an_upload_after_reprocessing_removes_the_old_file(
    http: httpx.AsyncClient, kb: str, pipeline: Pipeline, store_dir: Path
) -> None:
    document = await upload(http, kb, text("old"))
    await http.post(f"/documents/{document}/reprocess")
    await upload(http, kb, text("new"))
    await pipeline.run()
    assert await state(http, document) == ("ready", 3, 3, 1)
    assert [file.read_bytes() for file in stored_files(store_dir)] == [text("new")]


async def test_a_failed_document_can_be_reprocessed(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline
) -> None:
    document = await upload(http, kb, text("one"))
    await pool.execute("UPDATE documents SET status = 'failed', error_code = 'extraction_timeout'")
    await http.post(f"/documents/{document}/reprocess")
    await pipeline.run()
    assert (await state(http, document))[0] == "ready"


async def test_a_knowledge_base_is_reprocessed_whole(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.ingest.handlers.reprocessing.BATCH", 2)
    documents = [
        await upload(http, kb, text(name), name) for name in ("a.txt", "b.txt", "c.txt", "d.txt", "e.txt")
    ]
    other = (await http.post("/knowledge-bases", json={"name": "Other"})).json()["id"]
    untouched = await upload(http, other, text("f"))
    await pipeline.run()

    answer = await http.post(f"/knowledge-bases/{kb}/reprocess")

    assert (answer.status_code, answer.json()) == (202, {"documents": 5})
    assert answer.headers["location"] == f"/knowledge-bases/{kb}/documents"
    await pipeline.run()
    assert {await state(http, document) for document in documents} == {("ready", 2, 2, 1)}
    assert (await state(http, untouched))[1] == 1


@pytest.mark.parametrize("action", ["reprocess", "cancel"])
async def test_a_stranger_changes_nothing(http: httpx.AsyncClient, kb: str, action: str) -> None:
    document = await upload(http, kb, text("one"))
    for path in (f"/documents/{document}", f"/documents/{uuid4()}"):
        answer = await http.post(f"{path}/{action}", headers=bearer(BOB))
        assert (answer.status_code, answer.json()["code"]) == (404, "document_not_found")
    answer = await http.post(f"/knowledge-bases/{kb}/reprocess", headers=bearer(BOB))
    assert (answer.status_code, answer.json()["code"]) == (404, "knowledge_base_not_found")
    assert await state(http, document) == ("pending", 1, None, 0)


async def test_an_edit_of_one_paragraph_embeds_that_paragraph_alone(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline
) -> None:
    paragraphs = [f"paragraph {n}" for n in range(100)]
    document = await upload(http, kb, text(*paragraphs))
    await pipeline.run()
    assert sorted(pipeline.encoder.texts) == sorted(paragraphs)
    before = await vectors(pool, document)
    pipeline.encoder.texts.clear()

    edited = ["a new beginning", *paragraphs[:50], "another fiftieth", *paragraphs[51:]]
    await upload(http, kb, text(*edited))
    await pipeline.run()

    assert sorted(pipeline.encoder.texts) == ["a new beginning", "another fiftieth"]
    assert await state(http, document) == ("ready", 2, 2, 101)
    assert await searchable(pool, document) == [(2, paragraph) for paragraph in edited]
    after = await vectors(pool, document)
    assert {content: vector for content, vector in after.items() if content in before} == {
        content: before[content] for content in paragraphs if content != "paragraph 50"
    }


async def test_a_reprocessed_document_that_reads_the_same_is_not_embedded_again(
    http: httpx.AsyncClient, kb: str, pipeline: Pipeline
) -> None:
    document = await upload(http, kb, text("one", "two"))
    await pipeline.run()
    pipeline.encoder.texts.clear()
    await http.post(f"/documents/{document}/reprocess")
    await pipeline.run()
    assert pipeline.encoder.texts == []
    assert await state(http, document) == ("ready", 2, 2, 2)


async def test_the_model_reads_the_header_of_a_chunk_and_nobody_else_does(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline
) -> None:
    pipeline.extractor.headed = True
    document = await upload(http, kb, text("one"))
    await pipeline.run()
    assert pipeline.encoder.texts == ["policy.txt, other\n\none"]
    assert await searchable(pool, document) == [(1, "one")]
    [shown] = (await http.get(f"/documents/{document}/chunks")).json()["items"]
    assert (shown["content"], shown["char_end"], "header" in shown) == ("one", 3, False)
    assert await pool.fetchval("SELECT count(*) FROM chunks WHERE tsv @@ to_tsquery('english', 'policy')") == 0

    again = {"filename": "policy.txt", "category": "strategy"}
    await http.post(f"/knowledge-bases/{kb}/documents", params=again, content=text("one"))
    await pipeline.run()
    assert pipeline.encoder.texts[1:] == ["policy.txt, strategy\n\none"]
