"""Records that a producer hands over by a call, on their way to the topic."""

import time
from collections.abc import Sequence
from dataclasses import replace

import structlog

from kbmesh.auth import Principal
from kbmesh.errors import PermissionDenied
from services.ingest.domain.access import PRODUCING_ROLES, may_publish
from services.ingest.domain.records import Record, RecordDeletion, Seal, check_batch
from services.ingest.ports import RecordOutbox

log = structlog.get_logger(__name__)


def require_producer(principal: Principal) -> None:
    """Raises PermissionDenied: not_a_producer."""
    if not may_publish(principal):
        roles = " or ".join(sorted(PRODUCING_ROLES))
        raise PermissionDenied(f"records take the role {roles}", code="not_a_producer")


async def publish_records(changes: Sequence[Record | RecordDeletion], *, outbox: RecordOutbox) -> int:
    """All of them or none; how many. Those without a revision get the time in milliseconds.

    Raises:
        InvalidArgument: as `check_batch`.
        Unavailable: the database is down.
    """
    check_batch([(change.kind, change.source_id) for change in changes])
    now = time.time_ns() // 1_000_000
    await outbox.publish([replace(change, revision=change.revision or now) for change in changes])
    log.info("records_published", count=len(changes))
    return len(changes)


async def publish_seal(seal: Seal, *, outbox: RecordOutbox) -> None:
    """Raises Unavailable: the database is down."""
    await outbox.publish([seal])
    log.info("generation_seal_published", kind=seal.kind, generation=seal.generation, count=seal.record_count)
