from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

import numpy as np
import structlog

from kbmesh.errors import InvalidArgument, Misconfigured, NotFound, Unavailable
from services.embedder.domain.chunks import PendingChunk, ReadyChunks, Source, Stored
from services.embedder.domain.encoding import Encoded, InputType, Lane, Vectors, check_vectors, cut, unit
from services.embedder.domain.spaces import Space
from services.embedder.ports import Backlog, Models, SpaceDirectory, VectorStore

log = structlog.get_logger(__name__)

PROBE: Final = "Every table in the reporting schema has a named owner."
MIN_PROBE_COSINE: Final = 0.99
"""Half precision and other hardware give 0.9995 and more."""
FILLED_AT_ONCE: Final = 128
"""Chunks; enough that neighbours in length are near."""
MAX_TEXTS: Final = 32
MAX_TEXT_BYTES: Final = 32 * 1024


async def embed_texts(texts: Sequence[str], input_type: InputType, *, space: Space, models: Models) -> Encoded:
    """Vectors for a caller that waits.

    Raises:
        InvalidArgument: no text, more than 32, an empty one, or one over 32 KiB.
        NotFound: the model of `space` is not configured here.
    """
    if not 1 <= len(texts) <= MAX_TEXTS:
        raise InvalidArgument(f"send 1 to {MAX_TEXTS} texts, not {len(texts)}", code="bad_text_count")
    for position, text in enumerate(texts):
        if not text.strip():
            raise InvalidArgument(f"text {position} is empty", code="empty_text")
        if len(text.encode()) > MAX_TEXT_BYTES:
            raise InvalidArgument(f"text {position} is over {MAX_TEXT_BYTES} bytes", code="text_too_long")
    return await encode(texts, input_type, Lane.CALLER, space=space, models=models)


async def embed_chunks(
    batch: Sequence[ReadyChunks], *, spaces: SpaceDirectory, models: Models, store: VectorStore
) -> Stored:
    """Gives the chunks of `batch` their vectors in the active space and advances their documents.

    Raises:
        BadVector: the model failed on one of the texts; nothing was stored.
    """
    space = await spaces.find()
    pending = await store.pending(batch, space)
    vectors = np.empty((0, space.dimensions), np.float32)
    if pending:
        texts = [chunk.text for chunk in pending]
        vectors = (await encode(texts, InputType.DOCUMENT, Lane.FRESH, space=space, models=models)).vectors
    # Also with nothing pending: a batch that came twice may be what completes a document.
    return await store.store(batch, [chunk.id for chunk in pending], vectors, space)


async def check_model(space: Space, *, spaces: SpaceDirectory, models: Models) -> None:
    """Makes sure that the model which is configured is the one with which `space` was begun.

    Raises:
        Misconfigured: it encodes a fixed sentence otherwise, so it is another under the same name.
        Unavailable: the database or the model's endpoint does not answer.
    """
    now = (await encode([PROBE], InputType.DOCUMENT, Lane.REFILL, space=space, models=models)).vectors
    cosine = (unit(now) * unit(await spaces.remember_probe(space, now))).sum()
    if cosine < MIN_PROBE_COSINE:
        raise Misconfigured(
            f"what is configured as {space.model} is not the model that {space.id} was made with: the cosine of"
            f" their vectors for the same sentence is {cosine:.2f}",
            code="model_changed",
        )


async def fill(space: Space, *, models: Models, backlog: Backlog) -> bool:
    """Takes one step towards a space that lacks nothing; False: it does not lack anything.

    Raises:
        Unavailable: the database or the model's endpoint does not answer; what was taken is there for others.
    """
    if not await backlog.seed(space):
        return True
    chunks = await backlog.take(space, FILLED_AT_ONCE)
    if not chunks:
        return await backlog.build_index(space)
    try:
        vectors, bad = await _encode_what_can_be(chunks, space=space, models=models)
        good = [chunk.id for chunk in chunks if chunk.id not in bad]
        await backlog.fill(space, good, vectors)
    except BaseException:
        await backlog.put_back(space, [chunk.id for chunk in chunks], failed=False)
        raise
    if bad:
        log.warning("chunks_not_encoded", space=space.id, chunks=[str(chunk_id) for chunk_id in bad])
        await backlog.put_back(space, bad, failed=True)
    return True


async def _encode_what_can_be(
    chunks: Sequence[PendingChunk], *, space: Space, models: Models
) -> tuple[Vectors, list[UUID]]:
    """One vector for each chunk that has one, in their order, and the ids of the others."""
    try:
        texts = [chunk.text for chunk in chunks]
        return (await encode(texts, InputType.DOCUMENT, Lane.REFILL, space=space, models=models)).vectors, []
    except (Unavailable, OSError, TimeoutError):
        raise
    except Exception:
        if len(chunks) == 1:
            return np.empty((0, space.dimensions), np.float32), [chunks[0].id]
        half = len(chunks) // 2
        halves = (chunks[:half], chunks[half:])
        parts = [await _encode_what_can_be(part, space=space, models=models) for part in halves]
        return np.concatenate([vectors for vectors, _ in parts]), [bad for _, ids in parts for bad in ids]


async def encode(
    texts: Sequence[str], input_type: InputType, lane: Lane, *, space: Space, models: Models
) -> Encoded:
    """Vectors that may be stored in `space` and compared there.

    Raises:
        NotFound: its model is not configured here.
        BadVector: the model gave one without a direction, or of another size.
    """
    if space.model not in models:
        raise NotFound(
            f"this embedder is not configured with the model {space.model}", code="model_not_configured"
        )
    encoded = await models[space.model].encode(texts, input_type, lane)
    vectors = cut(encoded.vectors, space.dimensions)
    check_vectors(vectors, dimensions=space.dimensions)
    return replace(encoded, vectors=vectors)


async def give_up(source: Source, *, store: VectorStore) -> None:
    """For chunks that cannot be embedded, however often it is tried."""
    await store.mark_failed(
        source, code="embedding_failed", detail="The embedding model failed on a part of this document."
    )
