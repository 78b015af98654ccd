"""CloudEvents 1.0 in Kafka's binary content mode: `ce_*` headers, a protobuf message as the value.

Source: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar
from uuid import uuid4

from google.protobuf.message import DecodeError, Message

from kbmesh.errors import Poison
from kbmesh.observability import tracing

CONTENT_TYPE: Final = "application/protobuf"

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Event:
    """An event off the wire; `type` is the full protobuf name of `payload`."""

    id: str
    type: str
    source: str
    subject: str
    payload: bytes


def headers_for(message: Message, *, source: str, subject: str) -> dict[str, str]:
    """Headers of a new event that carries `message`, with the trace that is current."""
    return {
        "ce_specversion": "1.0",
        "ce_id": str(uuid4()),
        "ce_type": message.DESCRIPTOR.full_name,
        "ce_source": source,
        "ce_subject": subject,
        "ce_time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "content-type": CONTENT_TYPE,
        **tracing.inject(),
    }


def decode(headers: Mapping[str, bytes], value: bytes | None) -> Event:
    """The event in a Kafka record.

    Raises:
        Poison: a header that CloudEvents requires is missing or is not UTF-8, or there is no value.
    """
    try:
        attributes = {name: raw.decode() for name, raw in headers.items() if name.startswith("ce_")}
    except UnicodeDecodeError:
        raise Poison("a header is not UTF-8", code="bad_header") from None
    if attributes.get("ce_specversion") != "1.0" or value is None:
        raise Poison("not a CloudEvents 1.0 message in binary mode", code="not_a_cloudevent")
    try:
        return Event(
            id=attributes["ce_id"],
            type=attributes["ce_type"],
            source=attributes["ce_source"],
            subject=attributes.get("ce_subject", ""),
            payload=value,
        )
    except KeyError as error:
        raise Poison(f"header {error} is missing", code="not_a_cloudevent") from None


def unpack(event: Event, message_type: type[M]) -> M:
    """The protobuf message in `event`.

    Raises:
        Poison: the event is of another type, or its bytes do not decode.
    """
    if event.type != message_type.DESCRIPTOR.full_name:
        raise Poison(f"unknown event type {event.type[:128]!r}", code="unknown_event_type")
    try:
        return message_type.FromString(event.payload)
    except DecodeError:
        raise Poison(f"the value is not a {event.type}", code="bad_payload") from None
