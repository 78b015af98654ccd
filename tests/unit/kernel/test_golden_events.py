"""Bytes that other versions of the services read and write: a failure here is a broken contract."""

import pytest
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from kbmesh.common.v1.tier_pb2 import Tier
from kbmesh.events.v1 import chunks_pb2, documents_pb2, records_pb2, status_pb2

DOCUMENT = "0190d4a0-0000-7000-8000-000000000001"
KNOWLEDGE_BASE = "0190d4a0-0000-7000-8000-000000000002"
METADATA = Struct()
METADATA.update({"industry": "retail", "year": 2026})

EVENTS: dict[str, Message] = {
    "DocumentUploaded": documents_pb2.DocumentUploaded(
        document_id=DOCUMENT,
        kb_id=KNOWLEDGE_BASE,
        revision=2,
        storage_key="kb/doc/2",
        superseded_storage_key="kb/doc/1",
        size_bytes=1234,
    ),
    "DocumentDeleted": documents_pb2.DocumentDeleted(
        document_id=DOCUMENT, kb_id=KNOWLEDGE_BASE, revision=2, storage_key="kb/doc/2"
    ),
    "ChunksReady": chunks_pb2.ChunksReady(
        chunk_ids=["c1", "c2"], kind="document_chunk", source_id=DOCUMENT, revision=300, recompute=True
    ),
    "RecordUpserted": records_pb2.RecordUpserted(
        kind="skill_chunk",
        source_id="kpi/rules",
        revision=7,
        content="Größe",
        title="Rules",
        source_priority=Tier.TIER_INDUSTRY_BENCHMARK,
        metadata=METADATA,
        valid_until=Timestamp(seconds=1_800_000_000, nanos=5),
        generation=300,
    ),
    "GenerationSealed": records_pb2.GenerationSealed(kind="table_detail", generation=300, record_count=2),
    "RecordDeleted": records_pb2.RecordDeleted(kind="skill_chunk", source_id="kpi/rules", revision=8),
    "DocumentStatusChanged": status_pb2.DocumentStatusChanged(
        document_id=DOCUMENT,
        kb_id=KNOWLEDGE_BASE,
        revision=2,
        status=status_pb2.DOCUMENT_STATUS_FAILED,
        error_code="corrupt_file",
        chunk_count=4,
        embedded_count=3,
        occurred_at=Timestamp(seconds=1_800_000_000),
    ),
}
GOLDEN = {
    "DocumentUploaded": (
        "0a2430313930643461302d303030302d373030302d383030302d30303030303030303030303112243031393064346130"
        "2d303030302d373030302d383030302d303030303030303030303032180222086b622f646f632f322a086b622f646f63"
        "2f3130d209"
    ),
    "DocumentDeleted": (
        "0a2430313930643461302d303030302d373030302d383030302d30303030303030303030303112243031393064346130"
        "2d303030302d373030302d383030302d303030303030303030303032180222086b622f646f632f32"
    ),
    "ChunksReady": (
        "0a0263310a026332120e646f63756d656e745f6368756e6b1a2430313930643461302d303030302d373030302d383030"
        "302d30303030303030303030303120ac022801"
    ),
    "RecordUpserted": (
        "0a0b736b696c6c5f6368756e6b12096b70692f72756c6573180722074772c3b6c39f652a0552756c657330033a290a14"
        "0a08696e64757374727912081a0672657461696c0a110a04796561721209110000000000a89f4042080880a4a7da0610"
        "0548ac02"
    ),
    "GenerationSealed": "0a0c7461626c655f64657461696c10ac021802",
    "RecordDeleted": ("0a0b736b696c6c5f6368756e6b12096b70692f72756c65731808"),
    "DocumentStatusChanged": (
        "0a2430313930643461302d303030302d373030302d383030302d30303030303030303030303112243031393064346130"
        "2d303030302d373030302d383030302d303030303030303030303032180220062a0c636f72727570745f66696c653004"
        "380342060880a4a7da06"
    ),
}
UNKNOWN_FIELD = bytes.fromhex("fa3e05") + b"newer"  # field 1007, a string


def test_every_event_has_golden_bytes() -> None:
    modules = (chunks_pb2, documents_pb2, records_pb2, status_pb2)
    messages = {name for module in modules for name in module.DESCRIPTOR.message_types_by_name}
    assert messages == set(EVENTS) == set(GOLDEN)


@pytest.mark.parametrize("name", EVENTS)
def test_every_field_is_set(name: str) -> None:
    event = EVENTS[name]
    assert {field.name for field, _ in event.ListFields()} == {field.name for field in event.DESCRIPTOR.fields}


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_written_as_it_always_was(name: str) -> None:
    assert EVENTS[name].SerializeToString(deterministic=True).hex() == GOLDEN[name]


@pytest.mark.parametrize("name", EVENTS)
def test_old_bytes_are_read_as_they_always_were(name: str) -> None:
    assert type(EVENTS[name]).FromString(bytes.fromhex(GOLDEN[name])) == EVENTS[name]


@pytest.mark.parametrize("name", EVENTS)
def test_a_field_of_a_newer_version_is_passed_over_and_kept(name: str) -> None:
    newer = bytes.fromhex(GOLDEN[name]) + UNKNOWN_FIELD
    event = type(EVENTS[name]).FromString(newer)
    assert {field.name: value for field, value in event.ListFields()} == {
        field.name: value for field, value in EVENTS[name].ListFields()
    }
    assert event.SerializeToString(deterministic=True) == newer


def test_statuses_and_tiers_keep_their_numbers() -> None:
    assert dict(status_pb2.DocumentStatus.items()) == {
        "DOCUMENT_STATUS_UNSPECIFIED": 0,
        "DOCUMENT_STATUS_PENDING": 1,
        "DOCUMENT_STATUS_PROCESSING": 2,
        "DOCUMENT_STATUS_EMBEDDING": 3,
        "DOCUMENT_STATUS_READY": 4,
        "DOCUMENT_STATUS_EMPTY": 5,
        "DOCUMENT_STATUS_FAILED": 6,
        "DOCUMENT_STATUS_DELETED": 7,
    }
    assert dict(Tier.items()) == {
        "TIER_UNSPECIFIED": 0,
        "TIER_CUSTOMER_FACT": 1,
        "TIER_PLATFORM_BEST_PRACTICE": 2,
        "TIER_INDUSTRY_BENCHMARK": 3,
        "TIER_ADVISORY_GUIDANCE": 4,
    }
