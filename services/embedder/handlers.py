from collections.abc import Sequence
from typing import Final

import numpy as np

from kbmesh.errors import InvalidArgument
from services.embedder.domain.chunks import ReadyChunks, Source, Stored
from services.embedder.domain.encoding import Encoded, InputType, check_vectors
from services.embedder.ports import TextEncoder, VectorStore

MAX_TEXTS: Final = 32
MAX_TEXT_BYTES: Final = 32 * 1024


async def embed_texts(texts: Sequence[str], input_type: InputType, *, encoder: TextEncoder) -> Encoded:
    """Vectors for a caller that waits.

    Raises:
        InvalidArgument: no text, more than 32, an empty one, or one over 32 KiB.
    """
    if not 1 <= len(texts) <= MAX_TEXTS:
        raise InvalidArgument(f"send 1 to {MAX_TEXTS} texts, not {len(texts)}", code="bad_text_count")
    for position, text in enumerate(texts):
        if not text.strip():
            raise InvalidArgument(f"text {position} is empty", code="empty_text")
        if len(text.encode()) > MAX_TEXT_BYTES:
            raise InvalidArgument(f"text {position} is over {MAX_TEXT_BYTES} bytes", code="text_too_long")
    encoded = await encoder.encode(texts, input_type)
    check_vectors(encoded.vectors, dimensions=encoder.dimensions)
    return encoded


async def embed_chunks(batch: Sequence[ReadyChunks], *, encoder: TextEncoder, store: VectorStore) -> Stored:
    """Gives the chunks of `batch` their vectors and advances their documents.

    Raises:
        BadVector: the model failed on one of the texts; nothing was stored.
    """
    pending = await store.pending(batch)
    vectors = np.empty((0, encoder.dimensions), np.float32)
    if pending:
        vectors = (await encoder.encode_in_background([chunk.text for chunk in pending])).vectors
        check_vectors(vectors, dimensions=encoder.dimensions)
    # Also with nothing pending: a batch that came twice may be what completes a document.
    return await store.store(batch, [chunk.id for chunk in pending], vectors)


async def give_up(source: Source, *, store: VectorStore) -> None:
    """For chunks that cannot be embedded, however often it is tried."""
    await store.mark_failed(
        source, code="embedding_failed", detail="The embedding model failed on a part of this document."
    )
