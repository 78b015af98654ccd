"""What users of other systems reported, replayed here: each test names the report."""

import asyncio
from functools import partial
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from pdfminer.high_level import extract_text

from kbmesh.messaging import KafkaSettings, Producer
from kbmesh.models import bundled_model_path
from kbmesh.postgres import Pool, PostgresSettings
from services.ingest.adapters import unstructured
from services.ingest.adapters.postgres import OutboxRelay
from services.ingest.adapters.splitter import TokenizerSplitter
from services.ingest.domain.chunking import MAX_CHUNK_CHARS, chunk
from services.ingest.domain.content_type import ContentType
from services.ingest.domain.extraction import ChunkDraft
from services.ingest.domain.headers import Origin, compose_header
from tests.support.consuming import FAST, running, serial
from tests.support.documents import upload
from tests.support.files import pdf_with_nul
from tests.support.gateway import ALICE, BOB, bearer, client_of, make_gateway, stored_files
from tests.support.pipeline import SPACE, ParagraphExtractor, Pipeline, searchable, state, text

SPLITTER = TokenizerSplitter(bundled_model_path() / "tokenizer.json")


class WholeExtractor:
    """All of extraction, in this process."""

    async def extract(self, path: Path, content_type: ContentType, origin: Origin) -> list[ChunkDraft]:
        header = partial(compose_header, origin, SPLITTER)
        return chunk(unstructured.extract(path, content_type), SPLITTER, header)


class PoisonedExtractor(ParagraphExtractor):
    """Breaks in an unforeseen way on one document, and counts how often it was asked to."""

    tries = 0

    async def extract(self, path: Path, content_type: ContentType, origin: Origin) -> list[ChunkDraft]:
        if b"poison" in path.read_bytes():
            self.tries += 1
            raise RuntimeError("nobody foresaw this")
        return await super().extract(path, content_type, origin)


async def test_identical_bytes_uploaded_twice_in_parallel_are_one_live_document_and_neither_call_is_lost(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline, store_dir: Path
) -> None:
    """open-webui 27987: one of two parallel uploads of the same file fails as a duplicate of the other."""
    url = f"/knowledge-bases/{kb}/documents?filename=policy.txt"

    answers = await asyncio.gather(*(http.post(url, content=text("one", "two")) for _ in range(8)))
    await pipeline.run()

    assert {answer.status_code for answer in answers} == {200, 202}
    [document] = {answer.json()["document_id"] for answer in answers}
    assert {answer.json()["revision"] for answer in answers} == {1}
    assert await state(http, document) == ("ready", 1, 1, 2)
    assert await searchable(pool, document) == [(1, "one"), (1, "two")]
    assert len(stored_files(store_dir)) == 1


async def test_a_deleted_document_can_be_uploaded_again_with_the_same_bytes(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline
) -> None:
    """open-webui 29489: a deleted file cannot be uploaded again, "duplicate content"; or can, again and again."""
    first = await upload(http, kb, text("one"))
    await pipeline.run()
    await http.delete(f"/documents/{first}")
    second = await upload(http, kb, text("one"))
    await pipeline.run()
    assert second != first
    assert await state(http, second) == ("ready", 1, 1, 1)
    further = await http.post(f"/knowledge-bases/{kb}/documents?filename=policy.txt", content=text("one"))
    assert (further.status_code, further.json()["unchanged"]) == (200, True)
    assert await searchable(pool, second) == [(1, "one")]


async def test_a_document_is_absent_for_another_user_who_lists_or_fetches_it(
    http: httpx.AsyncClient, kb: str, pipeline: Pipeline
) -> None:
    """open-webui 4855: documents of one user show up in the lists of all others."""
    document = await upload(http, kb, text("one"))
    await pipeline.run()
    http.headers.update(bearer(BOB))

    for method, path in [("GET", ""), ("GET", "/content"), ("GET", "/chunks"), ("GET", "/events"), ("DELETE", "")]:
        theirs = await http.request(method, f"/documents/{document}{path}")
        missing = await http.request(method, f"/documents/{uuid4()}{path}")
        assert theirs.status_code == missing.status_code == 404
        assert theirs.json()["code"] == missing.json()["code"] == "document_not_found"
    listed = await http.get(f"/knowledge-bases/{kb}/documents")
    assert (listed.status_code, listed.json()["code"]) == (404, "knowledge_base_not_found")
    for path in ("/knowledge-bases", "/api/knowledge-base"):
        assert (await http.get(path)).json()["items"] == []

    http.headers.update(bearer(ALICE))
    assert (await state(http, document))[0] == "ready"


@pytest.mark.parametrize("again", ["upload", "reprocess"])
async def test_a_document_cancelled_in_the_middle_and_run_again_finishes_and_so_does_another(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline, again: str
) -> None:
    """ragflow 2814: after parsing was cancelled and started again, no document finishes any more."""
    document = await upload(http, kb, text("one"))
    under_way = await pipeline.extract()
    cancelled = await http.post(f"/documents/{document}/cancel")
    assert cancelled.json()["error_code"] == "cancelled"
    if again == "upload":
        await upload(http, kb, text("one"))
    else:
        await http.post(f"/documents/{document}/reprocess")
    other = await upload(http, kb, text("another"), "other.txt")
    await pipeline.embed(under_way)
    await pipeline.run()
    assert await state(http, document) == ("ready", 2, 2, 1)
    assert await searchable(pool, document) == [(2, "one")]
    assert (await state(http, other))[0] == "ready"


async def test_clients_that_reprocess_one_document_at_once_make_no_duplicates(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline
) -> None:
    """ragflow 13900: two clients re-embed a document, and each of its chunks is there twice."""
    document = await upload(http, kb, text("one", "two", "three"))
    await pipeline.run()

    answers = await asyncio.gather(*(http.post(f"/documents/{document}/reprocess") for _ in range(4)))
    await pipeline.run()

    assert sorted(answer.json()["revision"] for answer in answers) == [2, 3, 4, 5]
    assert await state(http, document) == ("ready", 5, 5, 3)
    assert await pool.fetchval("SELECT count(*) FROM chunks") == 3
    assert await pool.fetchval(f"SELECT count(*) FROM {SPACE.table}") == 3  # noqa: S608


async def test_a_huge_unbroken_table_is_cut_into_chunks_within_the_limits(
    http: httpx.AsyncClient, kb: str, pool: Pool, store_dir: Path
) -> None:
    """ragflow 11448: one huge table is one huge chunk, which the embedding model refuses."""
    rows = [[f"{row * 40 + column:05}" * 10 for column in range(40)] for row in range(20)]
    pipeline = Pipeline(pool, store_dir, extractor=WholeExtractor())
    await pipeline.open()
    document = await upload(http, kb, "\n".join(",".join(row) for row in rows).encode(), "table.csv")
    await pipeline.run()
    assert (await state(http, document))[0] == "ready"
    assert max(SPLITTER.count(content) for _, content in await searchable(pool, document)) <= SPLITTER.limit
    assert max(len(content) for _, content in await searchable(pool, document)) <= MAX_CHUNK_CHARS
    joined = "".join(content for _, content in await searchable(pool, document))
    assert all(cell in joined for row in rows for cell in row)


async def test_a_document_deleted_in_the_middle_does_not_come_back(
    http: httpx.AsyncClient, kb: str, pool: Pool, pipeline: Pipeline, store_dir: Path
) -> None:
    """dify 13829: a document deleted while it is indexed holds up those after it, or comes back."""
    document = await upload(http, kb, text("one"))
    await http.post(f"/documents/{document}/reprocess")
    messages = await pipeline.extract()
    await http.delete(f"/documents/{document}")
    other = await upload(http, kb, text("another"), "other.txt")
    await pipeline.embed(messages)
    await pipeline.run()
    assert (await http.get(f"/documents/{document}")).status_code == 404
    assert (await state(http, other))[0] == "ready"
    assert await pool.fetchval("SELECT count(*) FROM chunks") == 1
    assert [file.read_bytes() for file in stored_files(store_dir)] == [text("another")]


@pytest.mark.broker
async def test_one_poison_document_among_fifty_is_given_up_after_a_few_tries_and_the_others_are_ready(
    pool: Pool, postgres_settings: PostgresSettings, kafka_settings: KafkaSettings, store_dir: Path
) -> None:
    """pgai 783: a document that cannot be processed is tried for ever, and nothing behind it is."""
    topics, extractor = kafka_settings.topics, PoisonedExtractor()
    pipeline = Pipeline(pool, store_dir, extractor=extractor, topics=topics)
    await pipeline.open()
    async with client_of(make_gateway(pool, store_dir, topics)) as http:
        http.headers.update(bearer(ALICE))
        kb = (await http.post("/knowledge-bases", json={"name": "Finance"})).json()["id"]
        contents = [text("poison" if n == 20 else f"document {n}") for n in range(50)]
        files = [("file", (f"{n}.txt", content)) for n, content in enumerate(contents)]
        answer = await http.post(f"/knowledge-bases/{kb}/documents", files=files)
        assert {item["status"] for item in answer.json()["items"]} == {202}

    producer = Producer(kafka_settings)
    events = pipeline.extraction
    async with (
        running(OutboxRelay(pool, postgres_settings, producer).run),
        serial(kafka_settings, topics.documents, events.handle, on_dead=events.on_dead),
        asyncio.timeout(30),
    ):
        waiting = "SELECT count(*) FROM documents WHERE status IN ('pending', 'processing')"
        while await pool.fetchval(waiting):
            await asyncio.sleep(0.05)
    await producer.close()
    await pipeline.run()

    found = await pool.fetch("SELECT status, error_code, count(*) FROM documents GROUP BY 1, 2 ORDER BY 3")
    assert [tuple(row) for row in found] == [("failed", "internal", 1), ("ready", None, 49)]
    assert extractor.tries == FAST.attempts


async def test_nul_characters_in_the_text_of_a_pdf_leave_it_ready_and_its_spans_true(
    http: httpx.AsyncClient, kb: str, pool: Pool, store_dir: Path, tmp_path: Path
) -> None:
    """haystack 7592: NUL in a PDF's text makes the database refuse it; taken out later, it shifts every span."""
    path = tmp_path / "nul.pdf"
    path.write_bytes(pdf_with_nul("Rows are ke\0pt for seven\0 years.", "Owners re\0view them."))
    assert extract_text(path).count("\0") == 3
    pipeline = Pipeline(pool, store_dir, extractor=WholeExtractor())
    await pipeline.open()
    document = await upload(http, kb, path.read_bytes(), "nul.pdf")
    await pipeline.run()
    assert (await state(http, document))[0] == "ready"
    [found] = (await http.get(f"/documents/{document}/chunks")).json()["items"]
    whole = unstructured.extract(path, ContentType.PDF).text
    assert whole == "Rows are kept for seven years.\n\nOwners review them."
    assert whole[found["char_start"] : found["char_end"]] == found["content"] == whole
