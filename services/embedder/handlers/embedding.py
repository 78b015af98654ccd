from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from kbmesh.errors import InvalidArgument, NotFound, Unavailable
from services.embedder.domain.bisection import encode_by_bisection
from services.embedder.domain.chunks import Embedded, ReadyChunks, Source
from services.embedder.domain.encoding import Encoded, InputType, Lane, check_vectors, cut
from services.embedder.domain.spaces import Space
from services.embedder.ports import Models, SpaceDirectory, VectorStore

MAX_TEXTS: Final = 32
MAX_TEXT_BYTES: Final = 32 * 1024
MAX_MANY: Final = 2048
"""As many as OpenAI takes."""


async def embed_texts(texts: Sequence[str], input_type: InputType, *, space: Space, models: Models) -> Encoded:
    """Vectors for a caller that waits.

    Raises:
        InvalidArgument: no text, more than 32, an empty one, or one over 32 KiB.
        NotFound: the model of `space` is not configured here.
    """
    check_texts(texts, most=MAX_TEXTS)
    return await encode(texts, input_type, Lane.CALLER, space=space, models=models)


def check_texts(texts: Sequence[str], *, most: int) -> None:
    """Raises InvalidArgument: no text, more than `most`, an empty one, or one over 32 KiB."""
    if not 1 <= len(texts) <= most:
        raise InvalidArgument(f"send 1 to {most} texts, not {len(texts)}", code="bad_text_count")
    for position, text in enumerate(texts):
        if not text.strip():
            raise InvalidArgument(f"text {position} is empty", code="empty_text")
        if len(text.encode()) > MAX_TEXT_BYTES:
            raise InvalidArgument(f"text {position} is over {MAX_TEXT_BYTES} bytes", code="text_too_long")


async def embed_many(
    texts: Sequence[str], input_type: InputType, *, space: Space, models: Models
) -> AsyncIterator[Encoded]:
    """As `embed_texts`, of up to 2048 texts, 32 after 32: others that wait get their turn in between."""
    check_texts(texts, most=MAX_MANY)
    for start in range(0, len(texts), MAX_TEXTS):
        part = texts[start : start + MAX_TEXTS]
        yield await encode(part, input_type, Lane.CALLER, space=space, models=models)


async def find_model(name: str, dimensions: int | None, *, spaces: SpaceDirectory, models: Models) -> Space:
    """What `name` stands for, a model or the id of a space, at so many dimensions; None: all that it has.

    Raises:
        NotFound: neither is there, or the model of the space is not configured.
        InvalidArgument: it has fewer dimensions.
    """
    space = Space(name, models[name].dimensions) if name in models else await _find_space(name, spaces)
    if space is None or space.model not in models:
        raise NotFound(f"there is no model or embedding space {name!r}", code="model_not_found")
    if dimensions is not None and dimensions > space.dimensions:
        raise InvalidArgument(f"{name} has {space.dimensions} dimensions", code="bad_dimensions")
    return replace(space, dimensions=dimensions or space.dimensions)


def list_models(*, spaces: SpaceDirectory, models: Models) -> dict[str, int]:
    """What `find_model` finds, and its dimensions."""
    of_models = {name: model.dimensions for name, model in models.items()}
    of_spaces = {space.id: space.dimensions for space in spaces.known() if space.model in models}
    return of_spaces | of_models


async def _find_space(name: str, spaces: SpaceDirectory) -> Space | None:
    if not name:
        return None
    try:
        return await spaces.find(name)
    except NotFound:
        return None


async def embed_chunks(
    batch: Sequence[ReadyChunks], *, spaces: SpaceDirectory, models: Models, store: VectorStore
) -> Embedded:
    """Gives the chunks of `batch` their vectors in the active space, as far as they can be encoded, and advances
    their documents.

    Raises:
        Unavailable: the active space is one of a model that is not configured here.
        Exception: of the kind that the model raised, when it failed on each of the texts; nothing was stored.
    """
    space = await spaces.find()
    if space.model not in models:
        # Another process may have it: no text has a part in that.
        raise Unavailable(f"the active space needs the model {space.model}", code="model_not_configured")
    pending = await store.pending(batch, space)
    found = await encode_by_bisection(
        [chunk.text for chunk in pending],
        partial(encode, input_type=InputType.DOCUMENT, lane=Lane.FRESH, space=space, models=models),
    )
    if found.bad and not found.good:
        raise found.bad[0]
    vectors = [np.empty((0, space.dimensions), np.float32), *(part.vectors for part in found.parts)]
    # Also with nothing to write: a batch that came twice may be what completes a document.
    stored = await store.store(batch, [pending[index].id for index in found.good], np.concatenate(vectors), space)
    return Embedded(
        stored,
        truncated=sum(sum(part.truncated) for part in found.parts),
        bad={pending[index].id: error for index, error in found.bad.items()},
    )


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


def _check_texts(texts: Sequence[str], *, at_most: int) -> None:
    if not 1 <= len(texts) <= at_most:
        raise InvalidArgument(f"send 1 to {at_most} texts, not {len(texts)}", code="bad_text_count")
    for position, text in enumerate(texts):
        if not text.strip():
            raise InvalidArgument(f"text {position} is empty", code="empty_text")
        if len(text.encode()) > MAX_TEXT_BYTES:
            raise InvalidArgument(f"text {position} is over {MAX_TEXT_BYTES} bytes", code="text_too_long")


async def give_up(source: Source, *, store: VectorStore) -> None:
    """For chunks that cannot be embedded, however often it is tried."""
    await store.mark_failed(
        source, code="embedding_failed", detail="The embedding model failed on a part of this document."
    )
