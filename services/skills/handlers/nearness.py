import asyncio
from collections.abc import Sequence
from typing import Final

import numpy as np
import structlog

from kbmesh.errors import Unavailable
from services.skills.domain.skills import ChunkId, ListedChunk
from services.skills.domain.vectors import Embedded, Side, Space
from services.skills.ports import Embedder

log = structlog.get_logger(__name__)

BATCH: Final = 32  # as many as the embedding service takes
BATCH_TIMEOUT_S: Final = 30.0
MAX_TEXT_LENGTH: Final = 8_000
"""Of a chunk, in characters: no more than the 32 KiB that the embedding service takes. Models read less."""


class Nearness:
    """How near chunks are to questions. Their vectors are kept in memory, for one embedding space at a time.

    They are computed in the background and in the name of whoever asks first, for services have no identity of
    their own; and again once questions are answered for another space. `timeout_s` caps what callers allow.
    """

    def __init__(self, chunks: Sequence[ListedChunk], embedder: Embedder, *, timeout_s: float) -> None:
        self._ids = [listed.id for listed in chunks]
        self._texts = [f"{one.chunk.title}\n\n{one.chunk.content}"[:MAX_TEXT_LENGTH] for one in chunks]
        self._embedder = embedder
        self._timeout_s = timeout_s
        self._known: Embedded | None = None
        self._filling: asyncio.Task[None] | None = None

    async def to(self, question: str, *, timeout_s: float) -> dict[ChunkId, float]:
        """Cosine similarity of each chunk and `question`, which is not blank.

        Raises:
            Unavailable: the question got no vector in time, or the chunks have none yet.
        """
        timeout_s = min(self._timeout_s, timeout_s)
        asked = await self._embedder.embed([question], Side.QUESTION, timeout_s=timeout_s)
        if self._known is None or self._known.space != asked.space:
            if self._filling is None or self._filling.done():
                self._filling = asyncio.create_task(self._fill(asked.space))
            raise Unavailable("the chunks of skills have no vectors yet", code="skill_vectors_missing")
        return dict(zip(self._ids, (self._known.vectors @ asked.vectors[0]).tolist(), strict=True))

    async def close(self) -> None:
        """Leaves off computing vectors."""
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.wait([self._filling])

    async def _fill(self, space: Space) -> None:
        vectors = []
        try:
            for start in range(0, len(self._texts), BATCH):
                batch = self._texts[start : start + BATCH]
                embedded = await self._embedder.embed(
                    batch, Side.CHUNK, space_id=space.id, timeout_s=BATCH_TIMEOUT_S
                )
                if embedded.space != space:
                    raise Unavailable("the embedding service answers for another space", code="space_mismatch")
                vectors.append(embedded.vectors)
        except Unavailable as error:
            # The next question tries again.
            log.warning("skill_vectors_failed", space=space.id, code=error.code, detail=error.detail)
            return
        self._known = Embedded(space, np.concatenate(vectors))
        log.info("skill_vectors_computed", space=space.id, chunks=len(self._ids))
