"""Records off the wire, which Kafka and gRPC have in common."""

import hashlib
from datetime import UTC

from google.protobuf.json_format import MessageToDict

from kbmesh.errors import InvalidArgument
from kbmesh.events.v1.records_pb2 import GenerationSealed, RecordDeleted, RecordUpserted
from kbmesh.tiers import tier_from_proto
from services.ingest.domain.extraction import clean
from services.ingest.domain.metadata import Metadata
from services.ingest.domain.records import Record, RecordDeletion, Seal, check_deletion, check_record, check_seal


def read_record(upserted: RecordUpserted) -> Record:
    """
    Raises:
        InvalidArgument: unknown_tier, bad_valid_until; or as `check_record`.
    """
    unnumbered = RecordUpserted()
    unnumbered.CopyFrom(upserted)
    unnumbered.ClearField("revision")
    unnumbered.ClearField("generation")
    try:
        valid_until = upserted.valid_until.ToDatetime(UTC) if upserted.HasField("valid_until") else None
    except ValueError:
        raise InvalidArgument("valid_until is no time", code="bad_valid_until") from None
    try:
        attributes: Metadata = MessageToDict(upserted.metadata)
    except ValueError:
        raise InvalidArgument("metadata holds a number that is none", code="invalid_metadata") from None
    record = Record(
        kind=upserted.kind,
        source_id=clean(upserted.source_id),
        revision=upserted.revision,
        content=clean(upserted.content),
        title=clean(upserted.title),
        source_priority=tier_from_proto(upserted.source_priority),
        attributes=attributes,
        valid_until=valid_until,
        content_sha256=hashlib.sha256(unnumbered.SerializeToString(deterministic=True)).digest(),
        generation=upserted.generation,
    )
    check_record(record)
    return record


def read_deletion(deleted: RecordDeleted) -> RecordDeletion:
    """Raises InvalidArgument: as `check_deletion`."""
    deletion = RecordDeletion(deleted.kind, clean(deleted.source_id), deleted.revision)
    check_deletion(deletion)
    return deletion


def read_seal(sealed: GenerationSealed) -> Seal:
    """Raises InvalidArgument: as `check_seal`."""
    seal = Seal(sealed.kind, sealed.generation, sealed.record_count)
    check_seal(seal)
    return seal
