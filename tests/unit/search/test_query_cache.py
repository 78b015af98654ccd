"""The cache of question vectors over an embedder that answers when the test says so."""

import asyncio
from dataclasses import dataclass, field

import pytest

from services.search.adapters.cache import CachedQueryEmbedder
from services.search.domain.retrieval import QueryVector, Space, VectorLegSkipped

SPACE, OTHER = Space("mini_2", "vectors_mini_2", 2), Space("other_2", "vectors_other_2", 2)


@dataclass
class SlowEmbedder:
    asked: list[tuple[str, str]] = field(default_factory=list)
    cancelled: int = 0
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    failure: VectorLegSkipped | None = None
    values: tuple[float, ...] = (0.6, 0.8)

    async def embed(self, text: str, space: Space, *, timeout_s: float) -> QueryVector:
        self.asked.append((text, space.id))
        try:
            await self.answers.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failure is not None:
            raise self.failure
        return QueryVector(self.values, space.id)


@pytest.fixture
def embedder() -> SlowEmbedder:
    return SlowEmbedder()


def cached(embedder: SlowEmbedder, entries: int = 2) -> CachedQueryEmbedder:
    return CachedQueryEmbedder(embedder, entries=entries, timeout_s=5)


async def ask(cache: CachedQueryEmbedder, text: str = "churn", space: Space = SPACE, timeout_s: float = 5) -> str:
    return (await cache.embed(text, space, timeout_s=timeout_s)).space_id


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_question_is_encoded_once_for_each_space(embedder: SlowEmbedder) -> None:
    embedder.answers.set()
    cache = cached(embedder)

    found = [await ask(cache, space=space) for space in (SPACE, SPACE, OTHER, OTHER)]

    assert found == [SPACE.id, SPACE.id, OTHER.id, OTHER.id]
    assert embedder.asked == [("churn", SPACE.id), ("churn", OTHER.id)]


async def test_what_was_not_asked_for_longest_is_forgotten_first(embedder: SlowEmbedder) -> None:
    embedder.answers.set()
    cache = cached(embedder)

    for text in ("a", "b", "a", "c", "a", "b"):
        await ask(cache, text)

    assert [text for text, _ in embedder.asked] == ["a", "b", "c", "b"]


async def test_the_same_question_at_the_same_time_is_one_call(embedder: SlowEmbedder) -> None:
    cache = cached(embedder)
    asking = [asyncio.create_task(ask(cache)) for _ in range(3)]
    await settled()
    embedder.answers.set()

    assert await asyncio.gather(*asking) == [SPACE.id] * 3
    assert len(embedder.asked) == 1


async def test_who_is_cancelled_or_out_of_time_does_not_spoil_it_for_the_others(embedder: SlowEmbedder) -> None:
    cache = cached(embedder)
    first, patient = asyncio.create_task(ask(cache)), asyncio.create_task(ask(cache))
    await settled()
    first.cancel()
    with pytest.raises(VectorLegSkipped, match="embedding_unavailable"):
        await ask(cache, timeout_s=0.01)
    embedder.answers.set()

    assert await patient == SPACE.id
    assert first.cancelled()
    assert (len(embedder.asked), embedder.cancelled) == (1, 0)


async def test_a_call_ends_with_the_last_one_who_waits_and_the_next_one_starts_anew(
    embedder: SlowEmbedder,
) -> None:
    cache = cached(embedder)
    asking = [asyncio.create_task(ask(cache)) for _ in range(2)]
    await settled()
    for one in asking:
        one.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    late = asyncio.create_task(ask(cache))
    await settled()
    embedder.answers.set()

    assert await late == SPACE.id
    assert (len(embedder.asked), embedder.cancelled) == (2, 1)


@pytest.mark.parametrize("failing", ["refused", "without a direction"])
async def test_failures_reach_all_who_wait_and_are_not_remembered(embedder: SlowEmbedder, failing: str) -> None:
    if failing == "refused":
        embedder.failure = VectorLegSkipped("busy", code="embedding_unavailable")
    else:
        embedder.values = (0.0, 0.0)
    cache = cached(embedder)
    asking = [asyncio.create_task(ask(cache)) for _ in range(2)]
    await settled()
    embedder.answers.set()
    failures = await asyncio.gather(*asking, return_exceptions=True)
    embedder.failure, embedder.values = None, (0.6, 0.8)

    assert [type(failure) for failure in failures] == [VectorLegSkipped] * 2
    assert await ask(cache) == SPACE.id
    assert len(embedder.asked) == 2
