"""RecordsService as producers meet it: the real server in front, the outbox and what consumes it behind."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import SecretStr

from kbmesh.auth import AuthMode, AuthSettings
from kbmesh.events.v1.records_pb2 import GenerationSealed, RecordDeleted, RecordUpserted
from kbmesh.messaging import Topics
from kbmesh.postgres import Pool
from kbmesh.records.v1 import records_pb2 as pb
from kbmesh.records.v1.records_pb2_grpc import RecordsServiceStub
from kbmesh.rpc import ChannelSettings, GrpcSettings, open_channel, serve
from services.ingest.adapters.postgres import PostgresRecordOutbox
from services.ingest.entrypoints.grpc import SERVICE, register
from tests.support.rpc import TIMEOUT_S, failure, reason_of
from tests.support.tokens import SECRET, token

TOPICS = Topics("kbmesh")
AUTH = AuthSettings(mode=AuthMode.HS256, secret=SecretStr(SECRET))


class Producer:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: Any = RecordsServiceStub(channel)

    async def upsert(self, *records: RecordUpserted, roles: tuple[str, ...] = ("records",)) -> int:
        request = pb.UpsertRecordsRequest(records=records)
        return await self._call(self._stub.UpsertRecords, request, roles)

    async def delete(self, *records: RecordDeleted, roles: tuple[str, ...] = ("records",)) -> int:
        request = pb.DeleteRecordsRequest(records=records)
        return await self._call(self._stub.DeleteRecords, request, roles)

    async def seal(self, seal: GenerationSealed, roles: tuple[str, ...] = ("records",)) -> None:
        await self._answer(self._stub.SealGeneration, pb.SealGenerationRequest(seal=seal), roles)

    async def _call(self, method: Any, request: Any, roles: tuple[str, ...]) -> int:
        return int((await self._answer(method, request, roles)).accepted)

    async def _answer(self, method: Any, request: Any, roles: tuple[str, ...]) -> Any:
        metadata = (("authorization", token(roles=list(roles))),)
        return await method(request, metadata=metadata, timeout=TIMEOUT_S)


@pytest.fixture
async def producer(pool: Pool) -> AsyncIterator[Producer]:
    add = partial(register, outbox=PostgresRecordOutbox(pool, TOPICS.records))
    async with (
        serve(GrpcSettings(), AUTH, add, [SERVICE]) as server,
        open_channel(ChannelSettings(target=f"127.0.0.1:{server.port}")) as channel,
    ):
        yield Producer(channel)


def record(**fields: Any) -> RecordUpserted:
    good = {"kind": "use_case", "source_id": "churn", "content": "Save who would leave."}
    return RecordUpserted(**(good | fields))


async def published(pool: Pool) -> list[tuple[str, bytes]]:
    rows = await pool.fetch("SELECT key, payload FROM outbox WHERE topic = $1 ORDER BY id", TOPICS.records)
    return [tuple(row) for row in rows]


async def test_records_are_published_as_they_came(producer: Producer, pool: Pool) -> None:
    whole = record(
        revision=7, title="Churn", source_priority=1, valid_until=Timestamp(seconds=1_800_000_000), content="Größe"
    )
    whole.metadata.update({"run_id": "r-1", "tags": ["a", "b"], "year": 2026})

    assert await producer.upsert(whole, record(source_id="plain", revision=1)) == 2

    (first_key, first), (second_key, second) = await published(pool)
    assert (first_key, RecordUpserted.FromString(first)) == ("use_case:churn", whole)
    assert (second_key, RecordUpserted.FromString(second)) == (
        "use_case:plain",
        record(source_id="plain", revision=1),
    )


async def test_a_later_request_wins_where_no_revision_was_given(producer: Producer, pool: Pool) -> None:
    await producer.upsert(record(), record(source_id="other"))
    await producer.delete(RecordDeleted(kind="use_case", source_id="churn", revision=2**50))

    (_, first), (_, second), (_, deleted) = await published(pool)
    assert (
        RecordUpserted.FromString(first).revision == RecordUpserted.FromString(second).revision > 1_700_000_000_000
    )
    assert RecordDeleted.FromString(deleted).revision == 2**50


async def test_who_has_no_role_for_it_publishes_nothing(producer: Producer, pool: Pool) -> None:
    for call in (
        producer.upsert(record(kind="nonsense"), roles=()),
        producer.upsert(record(), roles=("editor", "team:x:admin")),
        producer.delete(RecordDeleted(kind="use_case", source_id="churn"), roles=()),
        producer.seal(GenerationSealed(kind="use_case", generation=1), roles=()),
    ):
        refused = await failure(call)
        assert (refused.code(), reason_of(refused)) == (grpc.StatusCode.PERMISSION_DENIED, "NOT_A_PRODUCER")
    assert await published(pool) == []
    assert await producer.upsert(record(), roles=("admin",)) == 1


def noting(**metadata: Any) -> RecordUpserted:
    noted = record()
    noted.metadata.update(metadata)
    return noted


async def test_one_bad_record_is_named_and_nothing_is_published(producer: Producer, pool: Pool) -> None:
    for bad, code in [
        (record(kind="nonsense"), "UNKNOWN_KIND"),
        (record(kind="document_chunk"), "UNKNOWN_KIND"),
        (record(source_id=""), "BAD_RECORD"),
        (record(source_id="x" * 513), "BAD_RECORD"),
        (record(revision=-1), "BAD_RECORD"),
        (record(generation=-1), "BAD_GENERATION"),
        (record(content=" \x00\n"), "BAD_RECORD"),
        (record(content="x" * (256 * 1024 + 1)), "RECORD_TOO_LARGE"),
        (record(title="x" * 501), "RECORD_TOO_LARGE"),
        (record(source_priority=99), "UNKNOWN_TIER"),
        (record(valid_until=Timestamp(seconds=2**50)), "BAD_VALID_UNTIL"),
        (noting(a={"b": 1}), "INVALID_METADATA"),
        (noting(a=float("nan")), "INVALID_METADATA"),
        (noting(a="x" * 20_000), "INVALID_METADATA"),
        (record(source_id="a"), "DUPLICATE_RECORD"),
    ]:
        refused = await failure(producer.upsert(record(source_id="a"), bad))
        assert (refused.code(), reason_of(refused)) == (grpc.StatusCode.INVALID_ARGUMENT, code)
        assert "record 1" in (refused.details() or "")
    assert await published(pool) == []


async def test_a_request_holds_1_to_500_records(producer: Producer, pool: Pool) -> None:
    for records in ([], [record(source_id=str(n)) for n in range(501)]):
        refused = await failure(producer.upsert(*records))
        assert reason_of(refused) == "BAD_RECORD_COUNT"
    assert await producer.upsert(*(record(source_id=str(n)) for n in range(500))) == 500
    assert len(await published(pool)) == 500


async def test_a_generation_and_its_seal_are_published(producer: Producer, pool: Pool) -> None:
    seal = GenerationSealed(kind="use_case", generation=3, record_count=1)
    await producer.upsert(record(revision=1, generation=3))
    await producer.seal(seal)

    (_, upserted), (key, sealed) = await published(pool)
    assert RecordUpserted.FromString(upserted).generation == 3
    assert (key, GenerationSealed.FromString(sealed)) == ("use_case:", seal)


async def test_a_bad_deletion_or_seal_is_refused(producer: Producer) -> None:
    good = RecordDeleted(kind="use_case", source_id="a")
    refused = await failure(producer.delete(good, RecordDeleted(kind="document_chunk", source_id="a")))
    assert reason_of(refused) == "UNKNOWN_KIND"
    assert "record 1" in (refused.details() or "")
    for bad, code in [
        (GenerationSealed(kind="document_chunk", generation=1), "UNKNOWN_KIND"),
        (GenerationSealed(kind="use_case"), "BAD_GENERATION"),
        (GenerationSealed(kind="use_case", generation=1, record_count=-1), "BAD_GENERATION"),
    ]:
        refused = await failure(producer.seal(bad))
        assert (refused.code(), reason_of(refused)) == (grpc.StatusCode.INVALID_ARGUMENT, code)
