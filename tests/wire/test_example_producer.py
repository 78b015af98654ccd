"""The sample producer against the real service, and on into the tables."""

import asyncio
from functools import partial

from google.protobuf.message import Message as Proto

from examples.publish_records import FOLDER, delete, publish, read_records
from kbmesh.auth import AuthMode, AuthSettings
from kbmesh.messaging import Message, Topics
from kbmesh.models import bundled_model_path
from kbmesh.postgres import Pool
from kbmesh.provenance import DOCUMENT_CHUNK, KINDS
from kbmesh.rpc import GrpcSettings, serve
from services.ingest.adapters.postgres import PostgresRecordOutbox, PostgresRecords
from services.ingest.adapters.text_chunker import TextChunker
from services.ingest.entrypoints.grpc import SERVICE, register
from services.ingest.entrypoints.kafka import RecordEvents

TOPICS = Topics("kbmesh")


def test_there_are_samples_of_every_kind_of_record() -> None:
    samples = {path.stem: read_records(path) for path in FOLDER.iterdir()}
    assert samples.keys() == KINDS.keys() - {DOCUMENT_CHUNK}
    assert {len(records) for records in samples.values()} <= {2, 3, 4}
    used: list[Proto] = [record for records in samples.values() for record in records]
    assert len(used) == len({record.SerializeToString(deterministic=True) for record in used})


async def test_samples_are_published_swapped_and_deleted(pool: Pool) -> None:
    add = partial(register, outbox=PostgresRecordOutbox(pool, TOPICS.records))
    records = RecordEvents(PostgresRecords(pool, TOPICS), TextChunker(bundled_model_path() / "tokenizer.json"))

    async def consume() -> set[str]:
        """What search sees once all that was published has been handled."""
        rows = await pool.fetch(
            """WITH taken AS (DELETE FROM outbox WHERE topic = $1 RETURNING id, headers, payload)
               SELECT headers ->> 'ce_type' AS type, payload FROM taken ORDER BY id""",
            TOPICS.records,
        )
        for row in rows:
            headers = {
                "ce_specversion": b"1.0",
                "ce_id": b"1",
                "ce_source": b"/t",
                "ce_type": row["type"].encode(),
            }
            await records.handle(Message(TOPICS.records, 0, 0, 0, b"k", row["payload"], headers))
        return {row["source_id"] for row in await pool.fetch("SELECT source_id FROM chunks WHERE live")}

    async with serve(GrpcSettings(), AuthSettings(mode=AuthMode.OFF), add, [SERVICE]) as server:
        target = f"127.0.0.1:{server.port}"
        every = sorted(FOLDER.iterdir())
        count = sum(len(read_records(path)) for path in every)
        assert await asyncio.to_thread(publish, target, every) == count
        seen = await consume()
        assert len(seen) == count

        use_cases = FOLDER / "use_case.yaml"
        assert await asyncio.to_thread(publish, target, [use_cases], 1) == 2
        await pool.execute("UPDATE records SET embedded_count = chunk_count")
        assert await consume() == seen
        assert await pool.fetchval("SELECT live FROM generations WHERE kind = 'use_case'") == 1

        assert await asyncio.to_thread(delete, target, "use_case", ["uc:bill-shock-warning"]) == 1
        assert await consume() == seen - {"uc:bill-shock-warning"}
