import asyncio
import json
from contextlib import suppress
from typing import Final

import structlog

from kbmesh.errors import Unavailable
from kbmesh.messaging import Outgoing, Producer
from kbmesh.postgres import Pool, PostgresSettings, connection, transaction
from services.ingest.adapters.postgres.listening import listen
from services.ingest.domain.outbox import OutboxRow, published

log = structlog.get_logger(__name__)

CHANNEL: Final = "kbmesh_outbox"
BATCH: Final = 500
POLL_S: Final = 5.0
RETRY_MAX_S: Final = 15.0
KEEP_PUBLISHED: Final = "1 day"
PURGE_INTERVAL_S: Final = 600.0


class OutboxRelay:
    """Publishes the outbox, in order per key. Any number may run: one at a time holds the lock and works.

    A notification wakes it; the poll is there for those that get lost with a connection.
    """

    def __init__(self, pool: Pool, settings: PostgresSettings, producer: Producer) -> None:
        self._pool = pool
        self._settings = settings
        self._producer = producer
        self._wake = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        stopped = asyncio.create_task(stop.wait())
        stopped.add_done_callback(lambda _: self._wake.set())
        listening = asyncio.create_task(
            listen(self._settings, CHANNEL, lambda _: self._wake.set(), self._wake.set)
        )
        delay = purged_at = 0.0
        loop = asyncio.get_running_loop()
        try:
            while not stop.is_set():
                self._wake.clear()
                try:
                    while await self._publish_batch() == BATCH and not stop.is_set():
                        pass
                    if loop.time() - purged_at > PURGE_INTERVAL_S:
                        await self._purge()
                        purged_at = loop.time()
                    delay = 0.0
                except Unavailable as error:
                    delay = min(max(delay * 2, 0.5), RETRY_MAX_S)
                    log.warning("relay_waits", code=error.code, retry_s=delay)
                await self._pause(stop, delay)
        finally:
            stopped.cancel()
            listening.cancel()
            await asyncio.wait([stopped, listening])

    async def _pause(self, stop: asyncio.Event, delay: float) -> None:
        """Until there is something to do; after a failure for `delay` at least, whatever arrives meanwhile."""
        waits_for, timeout = (stop, delay) if delay else (self._wake, POLL_S)
        with suppress(TimeoutError):
            await asyncio.wait_for(waits_for.wait(), timeout)

    async def _publish_batch(self) -> int:
        """Publishes and marks up to BATCH rows; how many are done with."""
        async with transaction(self._pool) as conn:
            if not await conn.fetchval("SELECT pg_try_advisory_xact_lock(hashtext($1))", CHANNEL):
                return 0
            rows = [
                OutboxRow(row["id"], row["topic"], row["key"], json.loads(row["headers"]), row["payload"])
                for row in await conn.fetch(
                    """SELECT id, topic, key, headers, payload FROM outbox
                       WHERE published_at IS NULL ORDER BY id LIMIT $1""",
                    BATCH,
                )
            ]
            if not rows:
                return 0
            acknowledged = await self._producer.send([_outgoing(row) for row in rows])
            done = published(rows, acknowledged)
            await conn.execute("UPDATE outbox SET published_at = now() WHERE id = ANY($1)", done)
        if len(done) < len(rows):
            raise Unavailable("the brokers did not take every message", code="broker_unavailable")
        return len(done)

    async def _purge(self) -> None:
        async with connection(self._pool) as conn:
            await conn.execute(f"DELETE FROM outbox WHERE published_at < now() - interval '{KEEP_PUBLISHED}'")


def _outgoing(row: OutboxRow) -> Outgoing:
    headers = {name: value.encode() for name, value in row.headers.items()}
    return Outgoing(row.topic, row.key.encode(), row.payload, headers)
