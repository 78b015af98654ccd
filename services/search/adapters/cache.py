import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from services.search.domain.retrieval import QueryVector, Space, VectorLegSkipped, check_comparable
from services.search.ports import QueryEmbedder

Question = tuple[str, str]
"""A space and a text."""


@dataclass(slots=True)
class _Call:
    task: asyncio.Task[QueryVector]
    waiting: int = 0


class CachedQueryEmbedder:
    """Port QueryEmbedder: another one whose last `entries` vectors are remembered, by space and text.

    What several ask at the same time it is asked once, in the name of the first, for `timeout_s` at most. Whoever
    gives up does not spoil it for the others, and when nobody waits any more, the call ends. Failures are not
    remembered.
    """

    def __init__(self, embedder: QueryEmbedder, *, entries: int, timeout_s: float) -> None:
        self._embedder = embedder
        self._entries: Final = entries
        self._timeout_s = timeout_s
        self._vectors: OrderedDict[Question, QueryVector] = OrderedDict()
        self._calls: dict[Question, _Call] = {}

    async def embed(self, text: str, space: Space, *, timeout_s: float) -> QueryVector:
        question = (space.id, text)
        if (vector := self._vectors.get(question)) is not None:
            self._vectors.move_to_end(question)
            return vector
        call = self._calls.get(question)
        if call is None:
            call = self._calls[question] = _Call(asyncio.create_task(self._ask(question, space)))
        call.waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(call.task)
        except TimeoutError as error:
            raise VectorLegSkipped(
                "the embedding service does not answer in time", code="embedding_unavailable"
            ) from error
        finally:
            call.waiting -= 1
            if not call.waiting and not call.task.done():
                # Forgotten at once: who asks from now on is not to join what is being cancelled.
                del self._calls[question]
                call.task.cancel()

    async def _ask(self, question: Question, space: Space) -> QueryVector:
        mine = asyncio.current_task()
        try:
            vector = await self._embedder.embed(question[1], space, timeout_s=self._timeout_s)
            check_comparable(vector, space)
        finally:
            if (call := self._calls.get(question)) is not None and call.task is mine:
                del self._calls[question]
        self._vectors[question] = vector
        if len(self._vectors) > self._entries:
            self._vectors.popitem(last=False)
        return vector
