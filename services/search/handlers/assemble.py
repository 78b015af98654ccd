import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Generic, TypeVar

import structlog

from kbmesh.errors import DeadlineExceeded, KbmeshError
from services.search.domain.assembly import (
    DIRECT,
    ESTATE,
    ESTATE_KINDS,
    AssemblyQuery,
    Item,
    ResolvedSkills,
    Section,
    Strategy,
    estate_title,
    of_record,
)
from services.search.domain.packing import pack
from services.search.domain.receipt import Assembly, StrategyReport, StrategyStatus
from services.search.domain.retrieval import Visibility
from services.search.handlers.channels import within_channel
from services.search.handlers.plan import Retrieved, retrieve
from services.search.ports import ContextStore, QueryEmbedder, RecordSource, SkillSource

log = structlog.get_logger(__name__)

STRATEGY_SHARE: Final = 0.8
"""Of the time that is left, so that what the others brought is answered when one is too slow."""

_NO_SKILLS: Final = "skills_not_configured: this server has no skills service to ask"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Tried(Generic[T]):
    value: T | None
    report: StrategyReport
    failure: KbmeshError | None = None


async def assemble_context(
    query: AssemblyQuery,
    visible: Visibility,
    *,
    store: ContextStore,
    records: RecordSource,
    skills: SkillSource | None,
    embedder: QueryEmbedder,
    remaining_s: float,
    now: datetime,
) -> Assembly:
    """What three strategies bring for the question, within budgets, with a receipt. What one of them cannot bring
    is missing, and the receipt says so.

    Raises:
        NotFound: channel_not_found. The caller sees no channel of that id.
        Unavailable, DeadlineExceeded: the database does not answer.
    """
    if query.channel_id is not None:
        visible = await within_channel(query.channel_id, visible, store)
    timeout_s = remaining_s * STRATEGY_SHARE
    async with asyncio.TaskGroup() as group:
        looking_up = group.create_task(
            _tried(Strategy.DIRECT, lambda: _direct(query, records, now), timeout_s),
        )
        resolving = group.create_task(
            _tried(Strategy.SKILLS, lambda: _skills(query, skills, timeout_s), timeout_s),
        )
        finding = group.create_task(
            _tried(
                Strategy.RETRIEVAL,
                lambda: retrieve(query, visible, store=store, embedder=embedder, remaining_s=timeout_s, now=now),
                timeout_s,
            )
        )
    direct, said, found = looking_up.result(), resolving.result(), finding.result()
    if direct.failure is not None and found.failure is not None:
        raise direct.failure
    retrieved = found.value or Retrieved()
    if skills is None:
        said = replace(said, report=replace(said.report, status=StrategyStatus.NOT_CONFIGURED, reason=_NO_SKILLS))
    if retrieved.degraded_reason:
        degraded = replace(found.report, status=StrategyStatus.DEGRADED, reason=retrieved.degraded_reason)
        found = replace(found, report=degraded)
    return Assembly(
        pack(query, [*(direct.value or ()), *retrieved.sections], said.value or ResolvedSkills()),
        (direct.report, said.report, found.report),
        retrieved.scopes,
        retrieved.relaxed,
        query.budgets.total,
    )


async def _tried(strategy: Strategy, work: Callable[[], Awaitable[T]], timeout_s: float) -> _Tried[T]:
    started = time.monotonic()

    def report(status: StrategyStatus, reason: str = "") -> StrategyReport:
        return StrategyReport(strategy, status, reason, round((time.monotonic() - started) * 1000))

    try:
        async with asyncio.timeout(timeout_s):
            value = await work()
    except TimeoutError:
        failure: KbmeshError = DeadlineExceeded("it took longer than there was time for")
    except KbmeshError as error:
        failure = error
    except Exception as error:
        log.exception("strategy_failed", strategy=strategy.name, error=type(error).__name__)
        failure = KbmeshError("internal error; the log has the details")
    else:
        return _Tried(value, report(StrategyStatus.OK))
    log.warning("context_degraded", strategy=strategy.name, code=failure.code, detail=failure.detail)
    return _Tried(None, report(StrategyStatus.FAILED, str(failure)), failure)


async def _direct(query: AssemblyQuery, records: RecordSource, now: datetime) -> list[tuple[Section, list[Item]]]:
    brought = []
    for direct in DIRECT:
        section = direct.section
        newest = await records.newest(direct.kinds, persona=query.persona, limit=direct.limit)
        if section.name == ESTATE:
            section = replace(section, title=estate_title(section, await records.counts(ESTATE_KINDS)))
        brought.append((section, [of_record(section, passage, until, now) for passage, until in newest]))
    return brought


async def _skills(query: AssemblyQuery, skills: SkillSource | None, timeout_s: float) -> ResolvedSkills:
    if skills is None:
        return ResolvedSkills()
    return await skills.resolve(
        query.intent,
        query.text,
        max_overlay_chars=query.budgets.overlay,
        max_context_chars=query.budgets.of[Strategy.SKILLS],
        timeout_s=timeout_s,
    )
