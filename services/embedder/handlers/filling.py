"""What spaces other than the active one lack, in the background."""

from functools import partial
from typing import Final

import numpy as np
import structlog

from kbmesh.errors import Misconfigured
from services.embedder.domain.bisection import encode_by_bisection
from services.embedder.domain.encoding import InputType, Lane, unit
from services.embedder.domain.spaces import Space
from services.embedder.handlers.embedding import encode
from services.embedder.ports import Backlog, Models, SpaceStore

log = structlog.get_logger(__name__)

PROBE: Final = "Every table in the reporting schema has a named owner."
MIN_PROBE_COSINE: Final = 0.99
"""Half precision and other hardware give 0.9995 and more."""
FILLED_AT_ONCE: Final = 128
"""Chunks; enough that neighbours in length are near."""


async def check_model(space: Space, *, store: SpaceStore, models: Models) -> None:
    """Makes sure that the model which is configured is the one with which `space` was begun.

    Raises:
        Misconfigured: it encodes a fixed sentence otherwise, so it is another under the same name.
        Unavailable: the database or the model's endpoint does not answer.
    """
    now = (await encode([PROBE], InputType.DOCUMENT, Lane.CALLER, space=space, models=models)).vectors
    cosine = (unit(now) * unit(await store.remember_probe(space, now))).sum()
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
        found = await encode_by_bisection(
            [chunk.text for chunk in chunks],
            partial(encode, input_type=InputType.DOCUMENT, lane=Lane.REFILL, space=space, models=models),
        )
        if found.good:
            vectors = np.concatenate([part.vectors for part in found.parts])
            await backlog.fill(space, [chunks[index].id for index in found.good], vectors)
    except BaseException:
        await backlog.put_back(space, [chunk.id for chunk in chunks], failed=False)
        raise
    if bad := [chunks[index].id for index in found.bad]:
        log.warning("chunks_not_encoded", space=space.id, chunks=[str(chunk_id) for chunk_id in bad])
        await backlog.put_back(space, bad, failed=True)
    return True
