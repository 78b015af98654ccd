from datetime import datetime
from uuid import UUID

import pytest

from kbmesh.errors import Poison
from kbmesh.events.v1.documents_pb2 import DocumentDeleted, DocumentUploaded
from kbmesh.messaging import decode, headers_for, unpack
from kbmesh.observability import tracing

UPLOADED = DocumentUploaded(document_id="d", kb_id="k", revision=3, storage_key="s")
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


def encoded(**changes: bytes | None) -> dict[str, bytes]:
    headers = {name: value.encode() for name, value in headers_for(UPLOADED, source="/here", subject="d").items()}
    for name, value in changes.items():
        if value is None:
            del headers[name]
        else:
            headers[name] = value
    return headers


def test_an_event_carries_the_attributes_that_cloudevents_asks_for() -> None:
    headers = headers_for(UPLOADED, source="/kbmesh/ingest", subject="d")
    assert headers["ce_specversion"] == "1.0"
    assert headers["ce_type"] == "kbmesh.events.v1.DocumentUploaded"
    assert headers["ce_source"] == "/kbmesh/ingest"
    assert headers["ce_subject"] == "d"
    assert headers["content-type"] == "application/protobuf"
    assert UUID(headers["ce_id"]).version == 4
    assert headers["ce_time"].endswith("Z")
    assert datetime.fromisoformat(headers["ce_time"]).tzinfo is not None


def test_each_event_has_an_id_of_its_own() -> None:
    assert encoded()["ce_id"] != encoded()["ce_id"]


def test_what_was_written_is_read_back() -> None:
    headers = encoded()
    event = decode(headers, UPLOADED.SerializeToString())
    assert (event.id, event.type) == (headers["ce_id"].decode(), "kbmesh.events.v1.DocumentUploaded")
    assert (event.source, event.subject) == ("/here", "d")
    assert unpack(event, DocumentUploaded) == UPLOADED


def test_the_subject_is_optional() -> None:
    assert decode(encoded(ce_subject=None), b"").subject == ""


def test_headers_of_others_are_left_alone() -> None:
    assert decode(encoded(other=b"\xff\xfe"), b"").source == "/here"


@pytest.mark.parametrize("name", ["ce_specversion", "ce_id", "ce_type", "ce_source"])
def test_a_missing_attribute_is_poison(name: str) -> None:
    with pytest.raises(Poison) as caught:
        decode(encoded(**{name: None}), b"")
    assert caught.value.code == "not_a_cloudevent"


def test_a_message_without_any_headers_is_poison() -> None:
    with pytest.raises(Poison):
        decode({}, b"some bytes")


def test_a_header_that_is_not_utf8_is_poison() -> None:
    with pytest.raises(Poison) as caught:
        decode(encoded(ce_id=b"\xff"), b"")
    assert caught.value.code == "bad_header"


def test_another_version_of_cloudevents_is_poison() -> None:
    with pytest.raises(Poison):
        decode(encoded(ce_specversion=b"2.0"), b"")


def test_a_tombstone_is_poison() -> None:
    with pytest.raises(Poison):
        decode(encoded(), None)


def test_another_type_than_the_expected_one_is_poison() -> None:
    with pytest.raises(Poison) as caught:
        unpack(decode(encoded(), UPLOADED.SerializeToString()), DocumentDeleted)
    assert caught.value.code == "unknown_event_type"


@pytest.mark.parametrize("value", [b"\xff\xff\xff", b"\x0a\x05abc", b'{"document_id": "d"}', b"\x0a\x02\xff\xfe"])
def test_bytes_that_are_not_the_message_are_poison(value: bytes) -> None:
    with pytest.raises(Poison) as caught:
        unpack(decode(encoded(), value), DocumentUploaded)
    assert caught.value.code == "bad_payload"


def test_the_trace_of_a_request_reaches_the_event_and_from_there_the_worker() -> None:
    with tracing.serving({"traceparent": TRACEPARENT}, "upload"):
        headers = encoded()
    assert headers["traceparent"].split(b"-")[1].decode() == TRACE_ID
    with tracing.consuming(headers, "process"):
        assert tracing.current_trace_id() == TRACE_ID


def test_outside_of_a_trace_there_is_no_traceparent() -> None:
    assert "traceparent" not in encoded()


def test_a_damaged_traceparent_begins_a_trace_of_its_own() -> None:
    with tracing.consuming({"traceparent": b"\xff\x00rubbish"}, "process"):
        assert tracing.current_trace_id() not in (None, TRACE_ID)
