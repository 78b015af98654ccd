from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from kbmesh.postgres import Pool, transaction
from services.ingest.ports import Known

LOCK: Final = "kbmesh_orphans"


class PostgresStorageKeys:
    """Which objects the documents point to."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[Known | None]:
        # The statements run where the lock is held: a connection that is lost takes both away.
        async with transaction(self._pool) as conn:

            async def known(keys: Sequence[str]) -> set[str]:
                rows = await conn.fetch("SELECT storage_key FROM documents WHERE storage_key = ANY($1)", keys)
                return {row["storage_key"] for row in rows}

            mine = await conn.fetchval("SELECT pg_try_advisory_xact_lock(hashtext($1))", LOCK)
            yield known if mine else None
