from collections.abc import Iterable

import structlog

from kbmesh.errors import Unavailable
from services.ingest.ports import ObjectStore

log = structlog.get_logger(__name__)


async def discard_objects(store: ObjectStore, keys: Iterable[str]) -> None:
    """Removes objects at once where the store answers; the event in the outbox does it again in any case."""
    for key in keys:
        try:
            await store.delete(key)
        except Unavailable:
            log.warning("object_not_discarded", storage_key=key)
            return
