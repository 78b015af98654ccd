"""Rows of any kind but document_chunk, as their producers hand them over."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kbmesh.errors import InvalidArgument
from kbmesh.provenance import DOCUMENT_CHUNK, KINDS, Tier, default_tier
from services.ingest.domain.metadata import Metadata, check_metadata

MAX_SOURCE_ID_CHARS: Final = 512
MAX_TITLE_CHARS: Final = 500
MAX_CONTENT_BYTES: Final = 256 * 1024
MAX_RECORDS: Final = 500
"""Of one request."""


@dataclass(frozen=True, slots=True)
class Record:
    kind: str
    source_id: str
    revision: int
    content: str
    title: str
    source_priority: Tier | None
    attributes: Metadata
    valid_until: datetime | None
    content_sha256: bytes
    """Over everything above but `revision`: equal means that nothing changed."""
    generation: int = 0
    """Of the whole kind that it is a part of; 0: none."""

    @property
    def tier(self) -> Tier:
        return self.source_priority or default_tier(self.kind)


@dataclass(frozen=True, slots=True)
class RecordDeletion:
    kind: str
    source_id: str
    revision: int


@dataclass(frozen=True, slots=True)
class Seal:
    """A generation of a kind is this many records."""

    kind: str
    generation: int
    record_count: int


def check_record(record: Record) -> None:
    """
    Raises:
        InvalidArgument: unknown_kind, bad_record, bad_generation, record_too_large, invalid_metadata.
    """
    _check_key(record.kind, record.source_id, record.revision)
    if record.generation < 0:
        raise InvalidArgument("a generation is not negative", code="bad_generation")
    if not record.content:
        raise InvalidArgument("a record needs content", code="bad_record")
    if len(record.content.encode()) > MAX_CONTENT_BYTES:
        raise InvalidArgument(f"the content is over {MAX_CONTENT_BYTES} bytes", code="record_too_large")
    if len(record.title) > MAX_TITLE_CHARS:
        raise InvalidArgument(f"the title is over {MAX_TITLE_CHARS} characters", code="record_too_large")
    check_metadata(record.attributes)


def check_deletion(deletion: RecordDeletion) -> None:
    """
    Raises:
        InvalidArgument: unknown_kind, bad_record.
    """
    _check_key(deletion.kind, deletion.source_id, deletion.revision)


def check_seal(seal: Seal) -> None:
    """
    Raises:
        InvalidArgument: unknown_kind, bad_generation.
    """
    _check_kind(seal.kind)
    if seal.generation < 1 or seal.record_count < 0:
        raise InvalidArgument(
            "a seal has a generation of 1 or more and a count of 0 or more", code="bad_generation"
        )


def check_batch(keys: Sequence[tuple[str, str]]) -> None:
    """Of the kinds and source_ids of one request.

    Raises:
        InvalidArgument: bad_record_count; duplicate_record, since which of the two is to win?
    """
    if not 1 <= len(keys) <= MAX_RECORDS:
        raise InvalidArgument(f"send 1 to {MAX_RECORDS} records, not {len(keys)}", code="bad_record_count")
    seen: dict[tuple[str, str], int] = {}
    for place, key in enumerate(keys):
        if (first := seen.setdefault(key, place)) != place:
            raise InvalidArgument(f"record {place} is the same as record {first}", code="duplicate_record")


def _check_key(kind: str, source_id: str, revision: int) -> None:
    _check_kind(kind)
    if not 1 <= len(source_id) <= MAX_SOURCE_ID_CHARS:
        raise InvalidArgument(f"a source_id has 1 to {MAX_SOURCE_ID_CHARS} characters", code="bad_record")
    if revision < 0:
        raise InvalidArgument("a revision is not negative", code="bad_record")


def _check_kind(kind: str) -> None:
    if kind not in KINDS or kind == DOCUMENT_CHUNK:
        raise InvalidArgument(f"records cannot be of kind {kind[:64]!r}", code="unknown_kind")
