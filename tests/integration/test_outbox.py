import asyncio
import json

import pytest

from kbmesh.events.v1.documents_pb2 import DocumentUploaded
from kbmesh.messaging import decode, enqueue, unpack
from kbmesh.observability import tracing
from kbmesh.postgres import Pool, connection, transaction

TOPIC = "kbmesh.documents.v1"
EVENT = DocumentUploaded(document_id="d", kb_id="k", revision=1, storage_key="s")
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


async def count(pool: Pool) -> object:
    async with connection(pool) as conn:
        return await conn.fetchval("SELECT count(*) FROM outbox")


async def test_an_event_becomes_visible_with_the_transaction_that_writes_it(pool: Pool) -> None:
    async with transaction(pool) as conn:
        await enqueue(conn, TOPIC, "d", EVENT, source="/kbmesh/ingest")
        assert await count(pool) == 0
    assert await count(pool) == 1


async def test_an_event_vanishes_with_the_transaction_that_writes_it(pool: Pool) -> None:
    with pytest.raises(ZeroDivisionError):
        async with transaction(pool) as conn:
            await enqueue(conn, TOPIC, "d", EVENT, source="/kbmesh/ingest")
            raise ZeroDivisionError
    assert await count(pool) == 0


async def test_what_is_stored_is_the_event_as_a_consumer_reads_it(pool: Pool) -> None:
    with tracing.serving({"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}, "upload"):
        async with transaction(pool) as conn:
            await enqueue(conn, TOPIC, "d", EVENT, source="/kbmesh/ingest")
    async with connection(pool) as conn:
        row = await conn.fetchrow("SELECT * FROM outbox")
    assert row is not None
    assert (row["topic"], row["key"], row["published_at"]) == (TOPIC, "d", None)
    headers = {name: value.encode() for name, value in json.loads(row["headers"]).items()}
    event = decode(headers, row["payload"])
    assert (event.source, event.subject) == ("/kbmesh/ingest", "d")
    assert unpack(event, DocumentUploaded) == EVENT
    assert headers["traceparent"].split(b"-")[1].decode() == TRACE_ID


async def test_events_keep_the_order_in_which_they_were_written(pool: Pool) -> None:
    async with transaction(pool) as conn:
        for revision in range(1, 6):
            await enqueue(conn, TOPIC, "d", DocumentUploaded(revision=revision), source="/here")
    async with connection(pool) as conn:
        rows = await conn.fetch("SELECT payload FROM outbox ORDER BY id")
    assert [DocumentUploaded.FromString(row["payload"]).revision for row in rows] == [1, 2, 3, 4, 5]


async def test_who_listens_is_told_after_the_commit_and_not_before(pool: Pool) -> None:
    told = asyncio.Event()
    async with pool.acquire() as listener:

        def on_notify(*_: object) -> None:
            told.set()

        await listener.add_listener("kbmesh_outbox", on_notify)
        async with transaction(pool) as conn:
            await enqueue(conn, TOPIC, "d", EVENT, source="/here")
            await listener.execute("SELECT 1")  # a notification that was there would come with the answer
            assert not told.is_set()
        await asyncio.wait_for(told.wait(), 5)
        await listener.remove_listener("kbmesh_outbox", on_notify)
