import time
from datetime import datetime

import structlog

from services.search.domain.context import ContextAnswer, ContextQuery, Reach, order
from services.search.domain.formatting import format_passages
from services.search.domain.retrieval import EXACT_UP_TO, choose_scan
from services.search.handlers.search import MAX_TRIES, VectorLeg, background
from services.search.ports import ContextStore, QueryEmbedder

log = structlog.get_logger(__name__)


async def retrieve_context(
    query: ContextQuery,
    reach: Reach,
    *,
    store: ContextStore,
    embedder: QueryEmbedder,
    remaining_s: float,
    now: datetime,
) -> ContextAnswer:
    """The passages of any kind that answer `query` best, among those that `reach` admits, and as a text.

    Raises:
        Unavailable: the database does not answer.
    """
    leg = VectorLeg(query.text, store, embedder, deadline=time.monotonic() + remaining_s)
    async with background(leg.encode()) as encoding:
        scan = choose_scan(await store.count_chunks(reach, at_most=EXACT_UP_TO + 1))
        for tries in range(1, MAX_TRIES + 1):
            async with background(store.by_keywords(query.text, reach, scan)) as keyword:
                nearest, skipped = await leg.search(encoding, reach, scan)
                ranked = order(nearest, await keyword, query, now=now)[: query.top_k]
            read = await store.context_passages([one.chunk_id for one in ranked], reach)
            if len(read) == len(ranked):  # as in kb_search
                break
            log.info("search_overtaken_by_swap", tries=tries)
    by_id = {passage.chunk_id: passage for passage in read}
    passages = tuple((by_id[one.chunk_id], one.score) for one in ranked if one.chunk_id in by_id)
    return ContextAnswer(
        passages, format_passages(passages, query.max_chars), "" if skipped is None else str(skipped)
    )
