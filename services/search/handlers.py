import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final, TypeVar

import structlog

from services.search.domain.passages import Answer
from services.search.domain.query import Query
from services.search.domain.ranking import Candidate, rank
from services.search.domain.retrieval import (
    EXACT_UP_TO,
    QueryVector,
    Scan,
    VectorLegSkipped,
    Visibility,
    check_comparable,
    choose_scan,
)
from services.search.ports import PassageStore, QueryEmbedder

log = structlog.get_logger(__name__)

MAX_TRIES: Final = 3
EMBEDDING_SHARE: Final = 0.6
"""Of the time that is left; the rest is for the database, so that a slow embedder costs one leg only."""

T = TypeVar("T")


async def kb_search(
    query: Query,
    visible: Visibility,
    *,
    store: PassageStore,
    embedder: QueryEmbedder,
    remaining_s: float,
    now: datetime,
) -> Answer:
    """The passages that answer `query` best, among those that `visible` admits.

    Raises:
        Unavailable: the database does not answer.
    """
    embed = embedder.embed(query.text, timeout_s=remaining_s * EMBEDDING_SHARE)
    async with _background(embed) as embedding:
        scan = choose_scan(await store.count_chunks(visible, at_most=EXACT_UP_TO + 1))
        for tries in range(1, MAX_TRIES + 1):
            async with _background(store.by_keywords(query.text, visible, scan)) as keyword:
                nearest, degraded_reason = await _vector_leg(embedding, visible, scan, store)
                ranked = rank(nearest, await keyword, now=now)[: query.limit]
            passages = await store.passages([one.chunk_id for one in ranked], visible)
            # A document that took on a new revision between the statements would be missing, or half of it:
            # what was read last is of one moment, so all of it being there means that nothing moved.
            if len(passages) == len(ranked):
                break
            log.info("search_overtaken_by_swap", tries=tries)
    by_id = {passage.chunk_id: passage for passage in passages}
    return Answer(
        tuple((by_id[one.chunk_id], one.score) for one in ranked if one.chunk_id in by_id), degraded_reason
    )


async def _vector_leg(
    embedding: asyncio.Task[QueryVector], visible: Visibility, scan: Scan, store: PassageStore
) -> tuple[list[Candidate], str]:
    """Candidates, and why there are none if the leg could not answer."""
    try:
        vector = await embedding
        space = await store.active_space()
        if space is not None and space.id != vector.space_id:
            space = await store.active_space(cached=False)
        if space is None:
            raise VectorLegSkipped("nothing has been embedded yet", code="no_active_space")
        check_comparable(vector, space)
        return await store.by_vector(vector, space, visible, scan), ""
    except VectorLegSkipped as skipped:
        log.warning("search_degraded", code=skipped.code, detail=skipped.detail)
        return [], str(skipped)


@asynccontextmanager
async def _background(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Runs `work` until it is awaited or the block is left, whichever is first."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
