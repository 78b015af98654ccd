from datetime import datetime

from services.search.domain.conflicts import flag_conflicts
from services.search.domain.context import ContextAnswer, ContextQuery, Reach, order
from services.search.domain.duplicates import SPARE, collapse
from services.search.domain.formatting import format_passages
from services.search.domain.query import Mode
from services.search.handlers.legs import ask_legs
from services.search.ports import ContextStore, QueryEmbedder


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
    found, degraded_reason = await ask_legs(
        query.text,
        reach,
        Mode.HYBRID,
        store=store,
        embedder=embedder,
        remaining_s=remaining_s,
        choose=lambda nearest, keyword: order(nearest, keyword, query, now=now)[: query.top_k + SPARE],
        read=lambda chunk_ids: store.context_passages(chunk_ids, reach),
    )
    passages = flag_conflicts(collapse(found, query.top_k), query.text, by_provenance=query.by_provenance)
    return ContextAnswer(passages, format_passages(passages, query.max_chars), degraded_reason)
