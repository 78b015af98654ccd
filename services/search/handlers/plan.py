"""The plan of an intent: several searches for one question, each in a scope of its own."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kbmesh.provenance import SCOPES
from services.search.domain.assembly import AssemblyQuery, Item, Section, of_passage, scope_section
from services.search.domain.context import ContextQuery, Reach, order
from services.search.domain.duplicates import SPARE, collapse
from services.search.domain.intents import Look
from services.search.domain.query import Mode
from services.search.domain.ranking import Candidate, Ranked
from services.search.domain.receipt import ScopeReport
from services.search.domain.retrieval import Visibility
from services.search.handlers.legs import ask_legs
from services.search.ports import ContextStore, QueryEmbedder

SCOPES_AT_ONCE: Final = 2
"""Each holds two connections at most, of the pool's ten."""


@dataclass(frozen=True, slots=True)
class Retrieved:
    """`relaxed`: nothing had cleared the floors. `degraded_reason` is empty when both legs answered everywhere."""

    sections: tuple[tuple[Section, tuple[Item, ...]], ...] = ()
    scopes: tuple[ScopeReport, ...] = ()
    relaxed: bool = False
    degraded_reason: str = ""


async def retrieve(
    query: AssemblyQuery,
    visible: Visibility,
    *,
    store: ContextStore,
    embedder: QueryEmbedder,
    remaining_s: float,
    now: datetime,
) -> Retrieved:
    """What the plan of the intent finds; if that is nothing, what it finds with its floors relaxed, once. Each of
    its searches asks `embedder`, which is expected to remember.

    Raises:
        Unavailable: the database does not answer.
    """
    turns = asyncio.Semaphore(SCOPES_AT_ONCE)

    async def search(plan: Sequence[Look]) -> list[_Found]:
        async def one(look: Look) -> _Found:
            async with turns:
                return await _look(query.text, look, visible, store, embedder, remaining_s, now)

        try:
            async with asyncio.TaskGroup() as group:
                looking = [group.create_task(one(look)) for look in plan]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        return [task.result() for task in looking]

    found = await search(query.plan)
    relaxed = not any(one.items for one in found)
    if relaxed:
        found = await search([look.relaxed() for look in query.plan])
    return Retrieved(
        tuple((one.section, one.items) for one in found),
        tuple(one.report for one in found),
        relaxed,
        next((one.degraded_reason for one in found if one.degraded_reason), ""),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    section: Section
    items: tuple[Item, ...]
    report: ScopeReport
    degraded_reason: str


async def _look(
    text: str,
    look: Look,
    visible: Visibility,
    store: ContextStore,
    embedder: QueryEmbedder,
    remaining_s: float,
    now: datetime,
) -> _Found:
    kinds = SCOPES[look.scope]
    query = ContextQuery(text, kinds, {}, look.top_k, look.min_score)
    reach = Reach(visible.sub, visible.teams, visible.kb_ids, kinds=kinds, attributes={})
    below = beyond = 0

    def choose(nearest: list[Candidate], keyword: list[Candidate]) -> list[Ranked]:
        nonlocal below, beyond
        cleared = order(nearest, keyword, query, now=now)
        below = len({one.chunk_id for one in (*nearest, *keyword)}) - len(cleared)
        beyond = max(0, len(cleared) - look.top_k)
        return cleared[: look.top_k + SPARE]

    found, degraded_reason = await ask_legs(
        text,
        reach,
        Mode.HYBRID,
        store=store,
        embedder=embedder,
        remaining_s=remaining_s,
        choose=choose,
        read=lambda chunk_ids: store.context_passages(chunk_ids, reach),
    )
    passages = collapse(found, look.top_k)
    section = scope_section(look.scope)
    return _Found(
        section,
        tuple(of_passage(section, passage, score) for passage, score in passages),
        ScopeReport(look.scope, look.top_k, look.min_score, len(passages), below, beyond),
        degraded_reason,
    )
