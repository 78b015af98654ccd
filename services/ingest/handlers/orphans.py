import asyncio
import re
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from kbmesh.errors import Unavailable
from services.ingest.ports import Known, ObjectStore, StorageKeys

log = structlog.get_logger(__name__)

BATCH: Final = 1000
OURS: Final = re.compile(r"(\.incoming|[0-9a-f-]{36})/[0-9a-f-]{32,36}")
"""Objects of uploads, and files that a directory store did not finish. All else in there is somebody else's."""


@dataclass(frozen=True, slots=True)
class OrphanPolicy:
    """`max_count`: a pass that finds more removes none. So many are not lost uploads, but the wrong database."""

    grace_s: float
    interval_s: float
    max_count: int


class OrphanCollector:
    """Removes objects that no document points to: of uploads and deletions that were cut short.

    Any number may run: one at a time works. An upload stores its object before its document, so an object counts
    only from the grace time on. That has to be longer than an upload takes, with the difference between the clocks
    of this machine and of the store.
    """

    def __init__(self, store: ObjectStore, storage_keys: StorageKeys, policy: OrphanPolicy) -> None:
        self._store = store
        self._storage_keys = storage_keys
        self._policy = policy

    async def run(self) -> None:
        """A pass now and one after each interval, until cancelled; a pass that is cut short loses nothing."""
        while True:
            try:
                await self.collect()
            except Unavailable as error:
                log.warning("orphans_wait", code=error.code)
            await asyncio.sleep(self._policy.interval_s)

    async def collect(self) -> int:
        """One pass; how many objects it removed.

        Raises:
            Unavailable: the database or the object store does not answer.
        """
        async with self._storage_keys.exclusive() as known:
            if known is None:
                return 0
            found = await self._find(known)
            if len(found) > self._policy.max_count:
                log.error("orphans_too_many", max_count=self._policy.max_count)
                return 0
            # Asked again: the listing may have taken long.
            orphans = sorted(set(found) - await known(found))
            for key in orphans:
                await self._store.delete(key)
                log.info("orphan_removed", storage_key=key)
        log.info("orphans_collected", removed=len(orphans))
        return len(orphans)

    async def _find(self, known: Known) -> list[str]:
        """Orphans; not many more than the policy allows, however many there are."""
        older_than = datetime.now(UTC) - timedelta(seconds=self._policy.grace_s)
        orphans: list[str] = []
        batch: list[str] = []
        async with aclosing(self._store.keys(older_than)) as keys:
            async for key in keys:
                if not OURS.fullmatch(key):
                    continue
                batch.append(key)
                if len(batch) == BATCH:
                    orphans += set(batch) - await known(batch)
                    batch.clear()
                    if len(orphans) > self._policy.max_count:
                        return orphans
        return [*orphans, *set(batch) - await known(batch)]
