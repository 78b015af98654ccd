import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

import structlog

from kbmesh.errors import Poison
from kbmesh.events.v1.chunks_pb2 import ChunksReady
from kbmesh.messaging import (
    Consumer,
    Dead,
    KafkaSettings,
    Message,
    Producer,
    RetrySettings,
    decode,
    run_batched,
    unpack,
)
from kbmesh.provenance import DOCUMENT_CHUNK
from services.embedder import handlers
from services.embedder.domain.chunks import ReadyChunks, Source
from services.embedder.ports import Models, SpaceDirectory, VectorStore

log = structlog.get_logger(__name__)

GROUP: Final = "embedder"
MAX_CHUNKS: Final = 32
WINDOW: Final = 1024
"""Messages of a partition held in memory, of some 2 KB each. A document behind more of them is not seen yet, and
waits."""


async def consume_chunks(
    kafka: KafkaSettings,
    *,
    spaces: SpaceDirectory,
    models: Models,
    store: VectorStore,
    batch_chunks: int,
    linger_s: float,
    in_flight: int,
    retry: RetrySettings,
    stop: asyncio.Event,
) -> None:
    """Embeds what the chunks topic announces, until `stop`."""

    async def handle(messages: Sequence[Message]) -> list[Dead]:
        batch = [read_message(message) for message in messages]
        embedded = await handlers.embed_chunks(batch, spaces=spaces, models=models, store=store)
        log.info(
            "chunks_embedded",
            messages=len(batch),
            vectors=embedded.stored.vectors,
            reused=embedded.stored.reused,
            ready=embedded.stored.documents_ready,
            truncated=embedded.truncated,
            bad=len(embedded.bad),
        )
        for chunk_id, error in embedded.bad.items():
            log.warning("chunk_failed", chunk_id=str(chunk_id), exc_info=error)
        return [
            Dead(_narrowed(message, bad), embedded.bad[bad[0]])
            for message, ready in zip(messages, batch, strict=True)
            if (bad := [chunk_id for chunk_id in ready.chunk_ids if chunk_id in embedded.bad])
        ]

    async def on_dead(message: Message, error: Exception) -> None:
        if not isinstance(error, Poison):
            await handlers.give_up(read_message(message).source, store=store)

    dead_letters = Producer(kafka)
    try:
        await run_batched(
            Consumer(kafka, [kafka.topics.chunks], kafka.group(GROUP), window=WINDOW),
            handle,
            dead_letters,
            size=batch_chunks,
            linger_s=linger_s,
            in_flight=in_flight,
            first_in_flight=1,
            weigh=_chunk_count,
            retry=retry,
            stop=stop,
            on_dead=on_dead,
        )
    finally:
        await dead_letters.close()


def read_message(message: Message) -> ReadyChunks:
    """
    Raises:
        Poison: not a ChunksReady, an id that is no UUID, or not 1 to 32 chunks.
    """
    event = unpack(decode(message.headers, message.value), ChunksReady)
    if not 1 <= len(event.chunk_ids) <= MAX_CHUNKS:
        raise Poison(f"{len(event.chunk_ids)} chunks in one message", code="bad_chunk_count")
    try:
        chunk_ids = tuple(UUID(chunk_id) for chunk_id in event.chunk_ids)
        source_id = str(UUID(event.source_id)) if event.kind == DOCUMENT_CHUNK else event.source_id
    except ValueError:
        raise Poison("an id is not a UUID", code="bad_id") from None
    return ReadyChunks(Source(event.kind, source_id, event.revision), chunk_ids, event.recompute)


def _narrowed(message: Message, chunk_ids: Sequence[UUID]) -> Message:
    """The same with these chunks alone."""
    event = ChunksReady.FromString(message.value or b"")
    event.chunk_ids[:] = [str(chunk_id) for chunk_id in chunk_ids]
    return replace(message, value=event.SerializeToString())


def _chunk_count(message: Message) -> int:
    try:
        return len(read_message(message).chunk_ids)
    except Poison:  # the handler says so again, where it counts
        return 1
