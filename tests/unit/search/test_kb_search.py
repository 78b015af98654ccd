"""The use case with fakes of its ports: what is still answered when a part is missing."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from kbmesh.errors import NotFound, Unavailable
from kbmesh.provenance import Category, Tier
from services.search import handlers
from services.search.domain.passages import Answer, Citation, Passage
from services.search.domain.query import Mode, Query
from services.search.domain.ranking import Candidate
from services.search.domain.retrieval import (
    EXACT_UP_TO,
    QueryVector,
    Scan,
    Space,
    SpaceOutdated,
    VectorLegSkipped,
    Visibility,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPACE = Space("mini_2", "vectors_mini_2", 2)
OLD_SPACE = Space("old_2", "vectors_old_2", 2)
BY_VECTOR, BY_KEYWORD = uuid4(), uuid4()
A, B, C = uuid4(), uuid4(), uuid4()


def passage(chunk_id: UUID) -> Passage:
    citation = Citation(None, (), 0, 4, bytes(32))
    return Passage(
        chunk_id, uuid4(), uuid4(), "a.txt", Category.OTHER, str(chunk_id), Tier.CUSTOMER_FACT, citation
    )


@dataclass
class FakeStore:
    space: Space | None = SPACE
    newer_space: Space | None = SPACE
    visible_chunks: int = 1
    gone_space: Space | None = None
    """The one that has no table any more."""
    gone_at_first: int = 0
    """How many readings of passages miss one."""
    keywords_failure: Unavailable | None = None
    scans: list[Scan] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)
    channels: dict[str, frozenset[UUID]] = field(default_factory=dict)
    seen_bases: frozenset[UUID] | None = None
    fresh_looks: int = 0
    keyword_searches: int = 0

    async def active_space(self, *, cached: bool = True) -> Space | None:
        self.fresh_looks += not cached
        return self.space if cached else self.newer_space

    async def channel_bases(self, visible: Visibility, channel_id: str) -> frozenset[UUID] | None:
        return self.channels.get(channel_id)

    async def estimate_all_chunks(self) -> int:
        return self.visible_chunks

    async def count_chunks(self, visible: Visibility, *, at_most: int) -> int:
        self.seen_bases = visible.kb_ids
        return min(self.visible_chunks, at_most)

    async def by_vector(
        self, vector: QueryVector, space: Space, visible: Visibility, scan: Scan
    ) -> list[Candidate]:
        self.scans.append(scan)
        self.searched.append(space.id)
        assert vector.space_id == space.id
        if space == self.gone_space:
            raise SpaceOutdated("no such table", code="space_gone")
        return [Candidate(BY_VECTOR, 0.9, Tier.CUSTOMER_FACT)]

    async def by_keywords(self, text: str, visible: Visibility, scan: Scan) -> list[Candidate]:
        self.scans.append(scan)
        self.keyword_searches += 1
        if self.keywords_failure is not None:
            raise self.keywords_failure
        return [Candidate(BY_KEYWORD, 0.1, Tier.INDUSTRY_BENCHMARK)]

    async def passages(self, chunk_ids: Sequence[UUID], visible: Visibility, *, around: int = 0) -> list[Passage]:
        if self.gone_at_first:
            self.gone_at_first -= 1
            chunk_ids = chunk_ids[1:]
        return [passage(chunk_id) for chunk_id in reversed(chunk_ids)]


@dataclass
class FakeEmbedder:
    answer: QueryVector | None = None
    """None: a good one for the space that is asked for."""
    knows: frozenset[str] | None = None
    """None: every space."""
    failure: VectorLegSkipped | None = None
    hangs: bool = False
    asked: list[str] = field(default_factory=list)
    timeout_s: float = 0
    cancelled: bool = False

    async def embed(self, text: str, space: Space, *, timeout_s: float) -> QueryVector:
        self.asked.append(space.id)
        self.timeout_s = timeout_s
        if self.failure is not None:
            raise self.failure
        if self.knows is not None and space.id not in self.knows:
            raise SpaceOutdated("no such space", code="space_mismatch")
        if self.hangs:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled = True
        return self.answer or QueryVector((0.6, 0.8), space.id)


async def search(
    store: FakeStore | None = None,
    embedder: FakeEmbedder | None = None,
    *,
    limit: int = 5,
    kb_ids: frozenset[UUID] | None = None,
    mode: Mode = Mode.HYBRID,
    min_score: float = 0,
    channel_id: str | None = None,
) -> Answer:
    return await handlers.kb_search(
        Query("churn?", kb_ids, limit, mode, min_score, channel_id),
        Visibility(uuid4(), kb_ids=kb_ids),
        store=store or FakeStore(),
        embedder=embedder or FakeEmbedder(),
        remaining_s=10,
        now=NOW,
    )


def ids(answer: Answer) -> list[UUID]:
    return [one.chunk_id for one, _ in answer.passages]


async def test_both_legs_are_fused_and_passages_stand_in_the_order_of_their_scores() -> None:
    answer = await search()

    assert ids(answer) == [BY_VECTOR, BY_KEYWORD]
    assert [score.value for _, score in answer.passages] == [0.25, 0.175]
    assert answer.degraded_reason == ""


async def test_no_more_than_the_limit_is_answered() -> None:
    assert ids(await search(limit=1)) == [BY_VECTOR]


async def test_the_embedder_gets_a_part_of_the_time_that_is_left() -> None:
    embedder = FakeEmbedder()

    await search(embedder=embedder)

    assert 0 < embedder.timeout_s < 10


@pytest.mark.parametrize("code", ["embedding_unavailable", "space_gone"])
async def test_without_a_vector_keywords_answer_alone_and_the_answer_says_so(code: str) -> None:
    answer = await search(embedder=FakeEmbedder(failure=VectorLegSkipped("down", code=code)))

    assert ids(answer) == [BY_KEYWORD]
    assert answer.degraded_reason == f"{code}: down"


async def test_the_question_is_encoded_for_the_space_that_is_searched() -> None:
    store, embedder = FakeStore(newer_space=OLD_SPACE), FakeEmbedder()

    answer = await search(store, embedder)

    assert answer.degraded_reason == ""
    assert (embedder.asked, store.searched, store.fresh_looks) == ([SPACE.id], [SPACE.id], 0)


@pytest.mark.parametrize(
    "answer", [QueryVector((0.6, 0.8), "other_2"), QueryVector((1, 0, 0), SPACE.id)], ids=["space", "dimensions"]
)
async def test_vectors_of_two_spaces_are_never_compared(answer: QueryVector) -> None:
    store = FakeStore()

    found = await search(store, FakeEmbedder(answer))

    assert ids(found) == [BY_KEYWORD]
    assert found.degraded_reason.startswith("space_mismatch")
    assert not store.searched


@pytest.mark.parametrize(
    ("knows", "gone"),
    [(frozenset({SPACE.id}), None), (None, OLD_SPACE)],
    ids=["the embedder has dropped it", "its table is gone"],
)
async def test_a_space_that_is_gone_is_left_for_the_one_that_became_active(
    knows: frozenset[str] | None, gone: Space | None
) -> None:
    store = FakeStore(space=OLD_SPACE, gone_space=gone, gone_at_first=1)
    embedder = FakeEmbedder(knows=knows)

    answer = await search(store, embedder)

    assert ids(answer) == [BY_VECTOR, BY_KEYWORD]
    assert answer.degraded_reason == ""
    assert embedder.asked == [OLD_SPACE.id, SPACE.id]
    assert store.searched[-2:] == [SPACE.id, SPACE.id]


@pytest.mark.parametrize("newer", [SPACE, OLD_SPACE, None], ids=["the same", "another one", "none"])
async def test_a_space_that_cannot_be_encoded_for_is_followed_once(newer: Space | None) -> None:
    embedder = FakeEmbedder(knows=frozenset())

    answer = await search(FakeStore(newer_space=newer), embedder)

    assert ids(answer) == [BY_KEYWORD]
    assert answer.degraded_reason.startswith("no_active_space" if newer is None else "space_mismatch")
    assert embedder.asked == ([SPACE.id, OLD_SPACE.id] if newer == OLD_SPACE else [SPACE.id])


async def test_before_anything_is_embedded_keywords_answer_alone() -> None:
    answer = await search(FakeStore(space=None))

    assert ids(answer) == [BY_KEYWORD]
    assert answer.degraded_reason.startswith("no_active_space")


@pytest.mark.parametrize(("visible", "scan"), [(10, Scan.EXACT), (10 * EXACT_UP_TO, Scan.INDEX)])
async def test_how_much_the_caller_sees_decides_on_the_scan(visible: int, scan: Scan) -> None:
    store = FakeStore(visible_chunks=visible)

    await search(store)

    assert store.scans == [scan, scan]


async def test_a_swap_between_the_statements_is_searched_again_with_the_same_vector() -> None:
    store, embedder = FakeStore(gone_at_first=1), FakeEmbedder()

    answer = await search(store, embedder)

    assert ids(answer) == [BY_VECTOR, BY_KEYWORD]
    assert (store.keyword_searches, embedder.asked) == (2, [SPACE.id])


async def test_endless_swaps_end_in_what_is_there() -> None:
    store = FakeStore(gone_at_first=1_000)

    assert ids(await search(store)) == [BY_KEYWORD]
    assert store.keyword_searches == handlers.MAX_TRIES


async def test_a_database_that_is_down_is_no_degraded_answer() -> None:
    embedder = FakeEmbedder(failure=VectorLegSkipped("down"))

    with pytest.raises(Unavailable):
        await search(FakeStore(keywords_failure=Unavailable("down")), embedder)


async def test_a_cancelled_search_leaves_nothing_running() -> None:
    embedder = FakeEmbedder(hangs=True)
    task = asyncio.create_task(search(embedder=embedder))
    while not embedder.asked:
        await asyncio.sleep(0)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert embedder.cancelled
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_one_leg_is_asked_alone_and_is_then_all_of_the_relevance() -> None:
    store, embedder = FakeStore(), FakeEmbedder()

    by_vector = await search(store, mode=Mode.VECTOR)
    assert (ids(by_vector), store.keyword_searches) == ([BY_VECTOR], 0)
    by_keyword = await search(embedder=embedder, mode=Mode.KEYWORD)
    assert (ids(by_keyword), embedder.asked) == ([BY_KEYWORD], [])
    assert [answer.passages[0][1].relevance for answer in (by_vector, by_keyword)] == [1, 1]
    assert by_vector.degraded_reason == by_keyword.degraded_reason == ""


@pytest.mark.parametrize("code", ["embedding_unavailable", "space_gone"])
async def test_a_vector_that_is_asked_for_and_cannot_be_had_is_an_outage(code: str) -> None:
    embedder = FakeEmbedder(failure=VectorLegSkipped("down", code=code))

    with pytest.raises(Unavailable) as failure:
        await search(embedder=embedder, mode=Mode.VECTOR)

    assert failure.value.code == code
    assert ids(await search(embedder=embedder, mode=Mode.KEYWORD)) == [BY_KEYWORD]


async def test_what_scores_less_than_asked_for_is_left_out() -> None:
    assert ids(await search(min_score=0.175)) == [BY_VECTOR, BY_KEYWORD]
    assert ids(await search(min_score=0.18)) == [BY_VECTOR]
    assert ids(await search(min_score=1)) == []


@pytest.mark.parametrize(
    ("asked", "channel", "seen"),
    [
        (None, {A, B}, {A, B}),
        ({A}, {A, B}, {A}),
        ({C}, {A, B}, set()),
        (None, set(), set()),
    ],
)
async def test_a_channel_leaves_of_what_is_asked_for_its_own_bases(
    asked: set[UUID] | None, channel: set[UUID], seen: set[UUID]
) -> None:
    store = FakeStore(channels={"slack:1": frozenset(channel)})

    await search(store, kb_ids=None if asked is None else frozenset(asked), channel_id="slack:1")

    assert store.seen_bases == frozenset(seen)


async def test_a_channel_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound, match="channel_not_found"):
        await search(channel_id="slack:1")
