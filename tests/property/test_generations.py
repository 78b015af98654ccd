"""Whole kinds of records replace one another in one step, in whatever order their events and vectors come."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbmesh.events.v1.chunks_pb2 import ChunksReady
from kbmesh.events.v1.records_pb2 import GenerationSealed, RecordDeleted, RecordUpserted
from kbmesh.messaging import Message, Topics, headers_for
from kbmesh.postgres import Pool
from services.embedder.adapters.postgres import PostgresVectorStore
from services.embedder.domain.chunks import ReadyChunks, Source
from services.ingest.adapters.postgres import PostgresRecords
from services.ingest.domain.extraction import ChunkDraft
from services.ingest.entrypoints.kafka import RecordEvents
from tests.support.vectors import SPACE, open_space, some_vectors

TOPICS = Topics("kbmesh")
KIND = "table_detail"

Event = RecordUpserted | RecordDeleted | GenerationSealed
Generation = dict[str, str]
"""What each record says."""

RUNS = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class WholeTexts:
    """Port Chunker: a record is a chunk."""

    async def chunk_text(self, text: str) -> list[ChunkDraft]:
        return [ChunkDraft(0, text, 0, len(text), 1, None, ())]


class Estate:
    """The two consumers, by hand."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._records = RecordEvents(PostgresRecords(pool, TOPICS), WholeTexts())
        self._vectors = PostgresVectorStore(pool, status_topic=TOPICS.status)

    async def handle(self, *events: Event) -> None:
        for event in events:
            headers = {k: v.encode() for k, v in headers_for(event, source="/test", subject="s").items()}
            await self._records.handle(Message(TOPICS.records, 0, 0, 0, b"k", event.SerializeToString(), headers))

    async def embed(self, *, at_most: int = 1000) -> None:
        """Chunks that have been announced, in order; the message goes once its effects are there."""
        rows = await self._pool.fetch(
            "SELECT id, payload FROM outbox WHERE topic = $1 ORDER BY id LIMIT $2", TOPICS.chunks, at_most
        )
        for row in rows:
            told = ChunksReady.FromString(row["payload"])
            source = Source(told.kind, told.source_id, told.revision)
            batch = [ReadyChunks(source, tuple(UUID(chunk_id) for chunk_id in told.chunk_ids))]
            pending = [chunk.id for chunk in await self._vectors.pending(batch, SPACE)]
            await self._vectors.store(batch, pending, some_vectors(len(pending)), SPACE)
            await self._pool.execute("DELETE FROM outbox WHERE id = $1", row["id"])

    async def seen(self) -> Generation:
        """By the keyword leg, and once there are vectors by the other one, too."""
        rows = await self._pool.fetch(
            f"""SELECT c.source_id, c.content, coalesce(v.live, true) AS live
                FROM chunks c LEFT JOIN {SPACE.table} v ON v.chunk_id = c.id WHERE c.live"""  # noqa: S608
        )
        assert all(row["live"] for row in rows)
        assert not await self._pool.fetchval(
            f"SELECT true FROM {SPACE.table} v JOIN chunks c ON c.id = v.chunk_id WHERE v.live <> c.live"  # noqa: S608
        )
        found = {row["source_id"]: row["content"] for row in rows}
        assert len(found) == len(rows)
        return found

    async def clear(self) -> None:
        await self._pool.execute("TRUNCATE records, generations, outbox, chunks CASCADE")


@pytest.fixture
async def estate(pool: Pool) -> Estate:
    await open_space(pool)
    return Estate(pool)


def upserts(number: int, generation: Generation) -> list[RecordUpserted]:
    return [
        RecordUpserted(kind=KIND, source_id=key, revision=number, content=content, generation=number)
        for key, content in generation.items()
    ]


def sealed(number: int, count: int) -> GenerationSealed:
    return GenerationSealed(kind=KIND, generation=number, record_count=count)


def events_of(number: int, generation: Generation) -> list[Event]:
    return [*upserts(number, generation), sealed(number, len(generation))]


def in_turn(generations: Sequence[Generation]) -> list[Event]:
    return [event for number, one in enumerate(generations, start=1) for event in events_of(number, one)]


A_GENERATION = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["old", "new"]), max_size=3)


@given(generations=st.lists(A_GENERATION, min_size=1, max_size=3), data=st.data())
@RUNS
async def test_in_any_order_search_sees_one_whole_generation_and_ends_with_the_newest(
    estate: Estate, generations: list[Generation], data: st.DataObject
) -> None:
    await estate.clear()
    events = in_turn(generations)
    again = data.draw(st.lists(st.sampled_from(events), max_size=3))
    whole: list[Generation] = [{}, *generations]
    at = 0
    for event in data.draw(st.permutations(events + again)):
        await estate.handle(event)
        at = whole.index(await estate.seen(), at)
        await estate.embed(at_most=data.draw(st.integers(0, 2)))
        at = whole.index(await estate.seen(), at)
    await estate.embed()

    assert await estate.seen() == generations[-1]
    await estate.handle(*in_turn(generations))
    await estate.embed()
    assert await estate.seen() == generations[-1]


OLD, NEW = {"a": "old", "b": "same", "c": "gone"}, {"a": "new", "b": "same", "d": "added"}


async def test_the_first_generation_is_seen_from_its_seal_on_without_vectors(estate: Estate) -> None:
    await estate.handle(*upserts(1, OLD))
    assert await estate.seen() == {}
    await estate.handle(sealed(1, 3))
    assert await estate.seen() == OLD


@pytest.mark.parametrize("last", ["record", "seal", "vector"])
async def test_the_next_one_takes_over_with_whatever_comes_last(estate: Estate, pool: Pool, last: str) -> None:
    await estate.handle(*events_of(1, OLD))
    await estate.embed()
    kept = await pool.fetchval("SELECT id FROM chunks WHERE source_id = 'b'")

    *first, late, seal = events_of(2, NEW)
    if last == "record":  # that has no vector to wait for
        first, late = [first[0], late], first[1]
    await estate.handle(*first, *([] if last == "record" else [late]), *([] if last == "seal" else [seal]))
    if last != "vector":
        await estate.embed()
    assert await estate.seen() == OLD

    if last == "vector":
        await estate.embed(at_most=1)
        assert await estate.seen() == OLD
        await estate.embed()
    else:
        await estate.handle(late if last == "record" else seal)
    assert await estate.seen() == NEW
    assert await pool.fetchval("SELECT id FROM chunks WHERE source_id = 'b'") == kept
    assert await pool.fetchval("SELECT count(*) FROM chunks") == 3
    assert await pool.fetchval(f"SELECT count(*) FROM {SPACE.table}") == 3  # noqa: S608


async def test_consumers_that_work_at_the_same_time_leave_no_generation_behind(estate: Estate) -> None:
    for number in range(1, 4):
        events = events_of(number, {key: f"{key} {number}" for key in "abcdef"})
        await asyncio.gather(*(estate.handle(event) for event in events))
        await asyncio.gather(*(estate.embed() for _ in range(3)))
        assert await estate.seen() == {key: f"{key} {number}" for key in "abcdef"}


async def test_an_empty_generation_empties_the_kind_and_no_other(estate: Estate) -> None:
    other = RecordUpserted(kind="use_case", source_id="u", revision=1, content="stays")
    await estate.handle(other, *events_of(1, OLD), sealed(2, 0))
    assert await estate.seen() == {"u": "stays"}


async def test_one_that_was_never_sealed_leaves_nothing_behind(estate: Estate, pool: Pool) -> None:
    await estate.handle(*events_of(1, OLD), *upserts(2, {"x": "never", "a": "never"}), *events_of(3, NEW))
    await estate.embed()
    assert await estate.seen() == NEW
    assert await pool.fetchval("SELECT count(*) FROM chunks") == 3


async def test_a_record_of_an_older_generation_comes_back_as_it_was(estate: Estate) -> None:
    x = RecordUpserted(kind=KIND, source_id="x", revision=1, content="x", generation=1)
    await estate.handle(x, sealed(1, 1), sealed(2, 0))
    assert await estate.seen() == {}
    x.generation = 3
    await estate.handle(x, sealed(3, 1))
    assert await estate.seen() == {"x": "x"}


async def test_what_is_deleted_meanwhile_is_not_waited_for(estate: Estate) -> None:
    await estate.handle(*events_of(1, OLD))
    await estate.embed()
    deletion = RecordDeleted(kind=KIND, source_id="d", revision=9)
    await estate.handle(deletion, *events_of(2, NEW))
    await estate.embed()
    assert await estate.seen() == {"a": "new", "b": "same"}


async def test_a_record_changed_by_itself_goes_live_by_itself(estate: Estate) -> None:
    await estate.handle(*events_of(1, OLD))
    await estate.embed()
    await estate.handle(RecordUpserted(kind=KIND, source_id="a", revision=5, content="corrected"))
    await estate.embed()
    assert await estate.seen() == OLD | {"a": "corrected"}
