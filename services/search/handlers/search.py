from datetime import datetime

from services.search.domain.conflicts import flag_conflicts
from services.search.domain.duplicates import SPARE, collapse
from services.search.domain.expansion import merge
from services.search.domain.passages import Answer
from services.search.domain.query import Query
from services.search.domain.ranking import Candidate, Ranked, rank
from services.search.domain.retrieval import Visibility
from services.search.handlers.channels import within_channel
from services.search.handlers.legs import ask_legs
from services.search.ports import PassageStore, QueryEmbedder


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
        NotFound: channel_not_found. The caller sees no channel of that id.
        Unavailable: the database does not answer, or the vector leg does not and is the only one asked for.
    """
    if query.channel_id is not None:
        visible = await within_channel(query.channel_id, visible, store)
    mode = query.mode

    def choose(nearest: list[Candidate], keyword: list[Candidate]) -> list[Ranked]:
        ranked = rank(nearest, keyword, now=now, legs=mode.by_vector + mode.by_keywords)
        return [one for one in ranked if one.score.value >= query.min_score][: query.limit + SPARE]

    found, degraded_reason = await ask_legs(
        query.text,
        visible,
        mode,
        store=store,
        embedder=embedder,
        remaining_s=remaining_s,
        choose=choose,
        read=lambda chunk_ids: store.passages(chunk_ids, visible, around=query.expand),
    )
    passages = merge(collapse(found, len(found)), query.limit) if query.expand else collapse(found, query.limit)
    return Answer(flag_conflicts(passages, query.text), degraded_reason)
