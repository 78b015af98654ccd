"""Both legs of a search, and the passages that they lead to, as of one moment."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from uuid import UUID

import structlog

from kbmesh.errors import Unavailable
from services.search.domain.context import ContextPassage
from services.search.domain.passages import Passage
from services.search.domain.query import Mode
from services.search.domain.ranking import Candidate, Ranked, Score
from services.search.domain.retrieval import (
    QueryVector,
    Scan,
    Space,
    SpaceOutdated,
    VectorLegSkipped,
    Visibility,
    check_comparable,
    choose_scan,
    exact_up_to,
)
from services.search.ports import PassageStore, QueryEmbedder

log = structlog.get_logger(__name__)

MAX_TRIES: Final = 3
EMBEDDING_SHARE: Final = 0.6
"""Of the time that is left; the rest is for the database, so that a slow embedder costs one leg only."""

T = TypeVar("T")
P = TypeVar("P", Passage, ContextPassage)


async def ask_legs(
    text: str,
    visible: Visibility,
    mode: Mode,
    *,
    store: PassageStore,
    embedder: QueryEmbedder,
    remaining_s: float,
    choose: Callable[[list[Candidate], list[Candidate]], list[Ranked]],
    read: Callable[[list[UUID]], Awaitable[Sequence[P]]],
) -> tuple[tuple[tuple[P, Score], ...], str]:
    """What `choose` makes of the candidates of the legs, as `read` gives it, best first; and why the vector leg
    did not answer, empty if it did or was not asked.

    Raises:
        Unavailable: the database does not answer, or the vector leg does not and is the only one asked for.
    """
    leg = _VectorLeg(text, store, embedder, deadline=time.monotonic() + remaining_s)
    async with _background(leg.encode() if mode.by_vector else _nothing()) as encoding:
        scan = await plan_scan(visible, store)
        for tries in range(1, MAX_TRIES + 1):
            by_keywords = store.by_keywords(text, visible, scan) if mode.by_keywords else _nothing()
            async with _background(by_keywords) as keyword:
                nearest, skipped = await leg.search(encoding, visible, scan) if mode.by_vector else ([], None)
                if skipped is not None and not mode.by_keywords:
                    raise Unavailable(skipped.detail, code=skipped.code)
                chosen = choose(nearest, await keyword)
            passages = await read([one.chunk_id for one in chosen])
            # A document that took on a new revision between the statements would be missing, or half of it:
            # what was read last is of one moment, so all of it being there means that nothing moved.
            if len(passages) == len(chosen):
                break
            log.info("search_overtaken_by_swap", tries=tries)
    by_id = {passage.chunk_id: passage for passage in passages}
    return (
        tuple((by_id[one.chunk_id], one.score) for one in chosen if one.chunk_id in by_id),
        "" if skipped is None else str(skipped),
    )


async def plan_scan(visible: Visibility, store: PassageStore) -> Scan:
    """Raises Unavailable: the database does not answer."""
    all_chunks = await store.estimate_all_chunks()
    visible_chunks = await store.count_chunks(visible, at_most=exact_up_to(all_chunks) + 1)
    return choose_scan(visible_chunks, all_chunks)


async def _nothing() -> Any:
    """What a leg finds that is not asked for."""
    return []


class _VectorLeg:
    """One question to the active space, which may be another one by the time that it is answered."""

    def __init__(self, text: str, store: PassageStore, embedder: QueryEmbedder, *, deadline: float) -> None:
        self._text = text
        self._store = store
        self._embedder = embedder
        self._deadline = deadline
        self._space: Space | None = None
        self._followed: tuple[QueryVector, Space] | None = None

    async def encode(self) -> tuple[QueryVector, Space]:
        """The question for the active space as of a few seconds ago, which costs no look into the database."""
        return await self._encode_for(await self._store.active_space())

    async def search(
        self, encoding: asyncio.Task[tuple[QueryVector, Space]], visible: Visibility, scan: Scan
    ) -> tuple[list[Candidate], VectorLegSkipped | None]:
        """Candidates, and why there are none if the leg could not answer."""
        try:
            try:
                return await self._store.by_vector(*(self._followed or await encoding), visible, scan), None
            except SpaceOutdated:
                space = await self._store.active_space(cached=False)
                if space == self._space:
                    raise
                self._followed = await self._encode_for(space)
                return await self._store.by_vector(*self._followed, visible, scan), None
        except VectorLegSkipped as skipped:
            log.warning("search_degraded", code=skipped.code, detail=skipped.detail)
            return [], skipped

    async def _encode_for(self, space: Space | None) -> tuple[QueryVector, Space]:
        self._space = space
        if space is None:
            raise VectorLegSkipped("nothing has been embedded yet", code="no_active_space")
        timeout_s = (self._deadline - time.monotonic()) * EMBEDDING_SHARE
        vector = await self._embedder.embed(self._text, space, timeout_s=timeout_s)
        check_comparable(vector, space)
        return vector, space


@asynccontextmanager
async def _background(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Runs `work` until it is awaited or the block is left, whichever is first."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
