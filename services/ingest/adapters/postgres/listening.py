import asyncio
from collections.abc import Callable
from typing import Final
from uuid import UUID

import asyncpg
import structlog

from kbmesh.postgres import PostgresSettings

log = structlog.get_logger(__name__)

RETRY_S: Final = 5.0
DOCUMENTS_CHANNEL: Final = "kbmesh_documents"


async def listen(
    settings: PostgresSettings, channel: str, heard: Callable[[str], None], connected: Callable[[], None]
) -> None:
    """Calls `heard(payload)` for each notification, until cancelled.

    Holds a connection of its own (PgBouncer would not keep one) and replaces it. Calls `connected` whenever it
    listens anew: what was committed before that has gone unheard.
    """
    while True:
        try:
            conn = await asyncpg.connect(settings.dsn.get_secret_value(), timeout=settings.connect_timeout_s)
        except (asyncpg.PostgresError, OSError, TimeoutError) as error:
            log.warning("not_listening", channel=channel, error=type(error).__name__)
            await asyncio.sleep(RETRY_S)
            continue
        try:
            lost = asyncio.Event()
            conn.add_termination_listener(lambda _, lost=lost: lost.set())
            await conn.add_listener(channel, lambda *arguments: heard(arguments[-1]))
            connected()
            await lost.wait()
        finally:
            await conn.close(timeout=settings.connect_timeout_s)


async def listen_for_documents(
    settings: PostgresSettings, changed: Callable[[UUID, UUID | None], None], connected: Callable[[], None]
) -> None:
    """Calls `changed(kb_id, document_id)`, or `changed(kb_id, None)` for a knowledge base that was deleted."""

    def heard(payload: str) -> None:
        kb_id, _, document_id = payload.partition(" ")
        changed(UUID(kb_id), UUID(document_id) if document_id else None)

    await listen(settings, DOCUMENTS_CHANNEL, heard, connected)
