"""The use case with fakes of its ports: what is still answered when a strategy is missing."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from kbmesh.errors import KbmeshError, Unavailable
from kbmesh.provenance import Tier
from services.search import handlers
from services.search.adapters.cache import CachedQueryEmbedder
from services.search.domain.assembly import ResolvedSkills, parse_assembly_query
from services.search.domain.context import ContextPassage, Reach
from services.search.domain.passages import Passage
from services.search.domain.ranking import Candidate
from services.search.domain.receipt import Assembly, StrategyStatus
from services.search.domain.retrieval import QueryVector, Scan, Space, Visibility
from services.search.ports import QueryEmbedder

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CHUNK = UUID(int=1)
DOWN = Unavailable("down", code="database_unavailable")


def passage(chunk_id: UUID, kind: str) -> ContextPassage:
    return ContextPassage(chunk_id, kind, str(chunk_id), "", "Churn.", Tier.CUSTOMER_FACT)


@dataclass
class Store:
    failure: KbmeshError | None = None
    similarity: float = 0.9
    searches: int = 0

    async def active_space(self, *, cached: bool = True) -> Space | None:
        return Space("mini_2", "vectors_mini_2", 2)

    async def channel_bases(self, visible: Visibility, channel_id: str) -> frozenset[UUID] | None:
        return None

    async def count_chunks(self, visible: Visibility, *, at_most: int) -> int:
        if self.failure is not None:
            raise self.failure
        return 1

    async def by_vector(
        self, vector: QueryVector, space: Space, visible: Visibility, scan: Scan
    ) -> list[Candidate]:
        self.searches += 1
        return [Candidate(CHUNK, self.similarity, Tier.CUSTOMER_FACT)]

    async def by_keywords(self, text: str, visible: Visibility, scan: Scan) -> list[Candidate]:
        return []

    async def estimate_all_chunks(self) -> int:
        return 0

    async def passages(self, chunk_ids: Sequence[UUID], visible: Visibility, *, around: int = 0) -> list[Passage]:
        return []

    async def context_passages(self, chunk_ids: Sequence[UUID], reach: Reach) -> list[ContextPassage]:
        return [passage(chunk_id, "table_detail") for chunk_id in chunk_ids]


@dataclass
class Records:
    failure: KbmeshError | None = None

    async def newest(self, kinds: Collection[str], **_: Any) -> list[tuple[ContextPassage, datetime | None]]:
        if self.failure is not None:
            raise self.failure
        return [(passage(UUID(int=2), "business_context"), None)] if "business_context" in kinds else []

    async def counts(self, kinds: Collection[str]) -> Mapping[str, int]:
        return {}


@dataclass
class Skills:
    hangs: bool = False
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def resolve(self, intent: str, question: str, **_: Any) -> ResolvedSkills:
        self.asked.set()
        if self.hangs:
            await asyncio.Event().wait()
        return ResolvedSkills("Do.")


@dataclass
class Embedder:
    hangs: bool = False
    asked: int = 0

    async def embed(self, text: str, space: Space, *, timeout_s: float) -> QueryVector:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        return QueryVector((0.6, 0.8), space.id)


async def assemble(
    store: Store | None = None,
    records: Records | None = None,
    skills: Skills | None = None,
    embedder: QueryEmbedder | None = None,
    *,
    remaining_s: float = 10,
) -> Assembly:
    return await handlers.assemble_context(
        parse_assembly_query("churn?", "technical"),
        Visibility(UUID(int=9)),
        store=store or Store(),
        records=records or Records(),
        skills=skills or Skills(),
        embedder=embedder or Embedder(),
        remaining_s=remaining_s,
        now=NOW,
    )


def told(assembly: Assembly) -> list[tuple[StrategyStatus, str]]:
    return [(report.status, report.reason.partition(":")[0]) for report in assembly.strategies]


OK = (StrategyStatus.OK, "")


async def test_the_database_failing_one_strategy_is_named_and_failing_both_is_an_outage() -> None:
    failed = (StrategyStatus.FAILED, "database_unavailable")

    assert told(await assemble(Store(DOWN))) == [OK, OK, failed]
    assert told(await assemble(None, Records(DOWN))) == [failed, OK, OK]
    with pytest.raises(Unavailable):
        await assemble(Store(DOWN), Records(DOWN))


async def test_a_strategy_that_is_too_slow_is_left_behind() -> None:
    assembly = await assemble(skills=Skills(hangs=True), remaining_s=0.2)

    assert told(assembly) == [OK, (StrategyStatus.FAILED, "deadline_exceeded"), OK]
    assert [section.name for section, _ in assembly.packed.sections] == ["business_context", "estate"]
    assert assembly.degraded


async def test_what_is_too_far_is_looked_for_again_once_with_the_same_vector() -> None:
    store, embedder = Store(similarity=0.24), Embedder()

    assembly = await assemble(store, embedder=CachedQueryEmbedder(embedder, entries=1, timeout_s=5))

    assert (assembly.relaxed, store.searches, embedder.asked) == (True, 6, 1)
    assert [scope.below_floor for scope in assembly.scopes] == [1, 1, 1]


async def test_a_cancelled_call_leaves_nothing_running() -> None:
    skills = Skills(hangs=True)
    task = asyncio.create_task(assemble(skills=skills, embedder=Embedder(hangs=True)))
    await skills.asked.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert asyncio.all_tasks() == {asyncio.current_task()}
