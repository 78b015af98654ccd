"""The records topic to chunks, over the real tables and tokenizer."""

from datetime import UTC, datetime

import pytest
from google.protobuf.message import Message as Proto

from kbmesh.common.v1 import tier_pb2
from kbmesh.errors import Poison
from kbmesh.events.v1.chunks_pb2 import ChunksReady
from kbmesh.events.v1.records_pb2 import GenerationSealed, RecordDeleted, RecordUpserted
from kbmesh.messaging import Message, Topics, headers_for
from kbmesh.models import bundled_model_path
from kbmesh.postgres import Pool
from services.ingest.adapters.postgres import PostgresRecords
from services.ingest.adapters.text_chunker import TextChunker
from services.ingest.entrypoints.kafka import RecordEvents

TOPICS = Topics("kbmesh")


@pytest.fixture(scope="module")
def chunker() -> TextChunker:
    return TextChunker(bundled_model_path() / "tokenizer.json")


@pytest.fixture
def events(pool: Pool, chunker: TextChunker) -> RecordEvents:
    return RecordEvents(PostgresRecords(pool, TOPICS), chunker)


def message(value: Proto) -> Message:
    headers = {k: v.encode() for k, v in headers_for(value, source="/test", subject="s").items()}
    return Message(TOPICS.records, 0, 0, 0, b"k", value.SerializeToString(), headers)


def upserted(revision: int = 1, content: str = "Use a window function.", **fields: object) -> Message:
    record = RecordUpserted(
        kind="skill_chunk", source_id="sql/windows", revision=revision, content=content, title="Windows"
    )
    record.MergeFrom(RecordUpserted(**fields))  # type: ignore[arg-type]
    return message(record)


def deleted(revision: int) -> Message:
    return message(RecordDeleted(kind="skill_chunk", source_id="sql/windows", revision=revision))


async def chunks(pool: Pool) -> list[tuple[int, str, bool]]:
    rows = await pool.fetch("SELECT revision, content, live FROM chunks ORDER BY revision, ordinal")
    return [(row["revision"], row["content"], row["live"]) for row in rows]


async def announced(pool: Pool) -> int:
    count: int = await pool.fetchval("SELECT count(*) FROM outbox WHERE topic = $1", TOPICS.chunks)
    return count


async def test_a_record_becomes_a_live_chunk_with_its_provenance(events: RecordEvents, pool: Pool) -> None:
    await events.handle(upserted())

    row = await pool.fetchrow("SELECT * FROM chunks")
    assert row is not None
    assert (row["kind"], row["source_id"], row["live"]) == ("skill_chunk", "sql/windows", True)
    assert row["tier"] == "PlatformBestPractice"
    assert '"title": "Windows"' in row["metadata"]
    assert await announced(pool) == 1


async def test_a_priority_and_an_expiry_are_kept(events: RecordEvents, pool: Pool) -> None:
    until = datetime(2027, 1, 1, tzinfo=UTC)
    await events.handle(upserted(source_priority=tier_pb2.TIER_ADVISORY_GUIDANCE, valid_until=until))

    row = await pool.fetchrow("SELECT tier, valid_until FROM chunks")
    assert row is not None
    assert (row["tier"], row["valid_until"]) == ("AdvisoryGuidance", until)


async def test_the_same_content_again_is_not_embedded_again(events: RecordEvents, pool: Pool) -> None:
    await events.handle(upserted(1))
    await pool.execute("UPDATE records SET embedded_count = chunk_count")
    await events.handle(upserted(2))

    assert await chunks(pool) == [(2, "Use a window function.", True)]
    assert await announced(pool) == 1


async def test_chunks_that_still_wait_are_announced_under_the_new_revision(
    events: RecordEvents, pool: Pool
) -> None:
    await events.handle(upserted(1))
    await events.handle(upserted(2))

    payloads = await pool.fetch("SELECT payload FROM outbox WHERE topic = $1 ORDER BY id", TOPICS.chunks)
    first, second = (ChunksReady.FromString(row["payload"]) for row in payloads)
    assert (first.revision, second.revision) == (1, 2)
    assert first.chunk_ids == second.chunk_ids


async def test_new_content_waits_behind_the_live_one(events: RecordEvents, pool: Pool) -> None:
    await events.handle(upserted(1))
    await events.handle(upserted(2, "Use two."))

    assert await chunks(pool) == [(1, "Use a window function.", True), (2, "Use two.", False)]


@pytest.mark.parametrize("late", [upserted(1, "Old."), deleted(1)])
async def test_what_comes_late_is_ignored(events: RecordEvents, pool: Pool, late: Message) -> None:
    await events.handle(upserted(2))
    await events.handle(late)
    assert await chunks(pool) == [(2, "Use a window function.", True)]


async def test_a_deleted_record_stays_deleted_until_a_newer_one_comes(events: RecordEvents, pool: Pool) -> None:
    await events.handle(upserted(1))
    await events.handle(deleted(3))
    await events.handle(upserted(2))
    assert await chunks(pool) == []

    await events.handle(upserted(4))
    assert await chunks(pool) == [(4, "Use a window function.", True)]


async def test_a_deletion_before_its_record_holds(events: RecordEvents, pool: Pool) -> None:
    await events.handle(deleted(2))
    await events.handle(upserted(1))
    assert await chunks(pool) == []


async def test_a_long_record_is_cut_into_chunks(events: RecordEvents, pool: Pool) -> None:
    await events.handle(upserted(content="A sentence of some words stands here. " * 300))
    assert len(await chunks(pool)) > 3
    assert await pool.fetchval("SELECT chunk_count FROM records") == len(await chunks(pool))


@pytest.mark.parametrize(
    "bad",
    [
        message(RecordUpserted(kind="nonsense", source_id="x", revision=1, content="x")),
        message(RecordUpserted(kind="document_chunk", source_id="x", revision=1, content="x")),
        message(RecordUpserted(kind="use_case", source_id="", revision=1, content="x")),
        message(RecordUpserted(kind="use_case", source_id="x", revision=1, content=" \x00\n")),
        message(RecordDeleted(kind="document_chunk", source_id="x", revision=1)),
        message(GenerationSealed(kind="use_case", record_count=1)),
        message(RecordUpserted(kind="use_case", source_id="x", content="x", source_priority=99)),  # type: ignore[arg-type]
        Message(TOPICS.records, 0, 0, 0, None, b"\xff\xff", {"ce_specversion": b"1.0"}),
    ],
)
async def test_a_record_that_can_never_be_taken_is_poison(events: RecordEvents, pool: Pool, bad: Message) -> None:
    with pytest.raises(Poison):
        await events.handle(bad)
    assert await chunks(pool) == []
