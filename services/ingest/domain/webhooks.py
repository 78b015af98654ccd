"""Webhooks that follow Standard Webhooks.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

SECRET_BYTES: Final = 32
GONE: Final = 410
"""The answer of an endpoint that wants nothing any more."""


class EventStatus(StrEnum):
    """What a document can be reported as."""

    PENDING = "pending"
    PROCESSING = "processing"
    EMBEDDING = "embedding"
    READY = "ready"
    EMPTY = "empty"
    FAILED = "failed"
    DELETED = "deleted"


class DeliveryStatus(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Webhook:
    """Empty `statuses` or `kb_ids`: all."""

    id: UUID
    endpoint: str
    statuses: tuple[EventStatus, ...]
    kb_ids: tuple[UUID, ...]
    created_at: datetime
    rotated_at: datetime | None
    disabled_at: datetime | None
    """Since when nothing is sent."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one webhook; the answer is that of the last attempt."""

    id: UUID
    event_id: str
    status: DeliveryStatus
    attempts: int
    due_at: datetime
    attempted_at: datetime | None
    response_code: int | None
    error: str | None
    created_at: datetime
    body: str


@dataclass(frozen=True, slots=True)
class Due:
    """A delivery to attempt now; `attempts` counts this one."""

    id: UUID
    webhook_id: UUID
    endpoint: str
    secrets: tuple[bytes, ...]
    """The newest first; older ones sign too, for a while after they were replaced."""
    body: str
    attempts: int


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """A document has changed its state."""

    id: str
    document_id: UUID
    kb_id: UUID
    revision: int
    status: EventStatus
    error_code: str | None
    chunk_count: int
    embedded_count: int
    occurred_at: datetime

    @property
    def body(self) -> str:
        data = {
            "document_id": str(self.document_id),
            "kb_id": str(self.kb_id),
            "revision": self.revision,
            "status": self.status,
            "error_code": self.error_code,
            "chunk_count": self.chunk_count,
            "embedded_count": self.embedded_count,
        }
        timestamp = self.occurred_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return json.dumps({"type": f"document.{self.status}", "timestamp": timestamp, "data": data})


def signing_key(stored: bytes, key: bytes | None) -> bytes:
    """What signs: with a key in the settings, a copy of the database alone is not enough to sign."""
    return stored if key is None else hmac.digest(key, stored, hashlib.sha256)


def shown(signing: bytes) -> str:
    return "whsec_" + base64.b64encode(signing).decode()


def headers(keys: Sequence[bytes], message_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """The headers of an attempt, with a signature by each key.

    Repeated attempts have one `message_id`, and each its own timestamp.
    """
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    signatures = (base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys)
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
