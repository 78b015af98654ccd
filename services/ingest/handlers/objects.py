import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import structlog

from kbmesh.errors import Unavailable
from services.ingest.domain.models import Removed
from services.ingest.ports import ObjectStore

log = structlog.get_logger(__name__)

REMOVAL_S: Final = 10.0
"""How long the caller of a deletion waits for the object store; what is left then goes with the events."""
AT_ONCE: Final = 8


async def discard_objects(store: ObjectStore, keys: Iterable[str]) -> None:
    """Removes objects at once where the store answers; the event in the outbox does it again in any case."""
    for key in keys:
        try:
            await store.delete(key)
        except Unavailable:
            log.warning("object_not_discarded", storage_key=key)
            return


async def remove_objects(store: ObjectStore, removed: Removed) -> Removed:
    """Removes the objects of deleted documents and looks whether they are gone; the receipt says what was found.

    Never fails: the events in the outbox remove what this does not get to.
    """
    keys = removed.storage_keys + removed.superseded_keys
    seen = left = 0
    try:
        async with asyncio.timeout(REMOVAL_S):
            while seen < len(keys):
                there = await asyncio.gather(*(_is_left(store, key) for key in keys[seen : seen + AT_ONCE]))
                seen += len(there)
                left += sum(there)
    except (Unavailable, TimeoutError) as error:
        log.warning("objects_not_removed", pending=len(keys) - seen, error=type(error).__name__)
    return replace(removed, objects_left=left, objects_pending=len(keys) - seen)


async def _is_left(store: ObjectStore, key: str) -> bool:
    await store.delete(key)
    return await store.exists(key)
