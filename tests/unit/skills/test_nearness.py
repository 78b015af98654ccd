"""The vectors of chunks: computed when first asked for, and again in another space."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from kbmesh.errors import Unavailable
from services.skills.domain.skills import ChunkCategory, ChunkId, ListedChunk, SkillChunk
from services.skills.domain.vectors import Embedded, Side, Space
from services.skills.handlers.nearness import Nearness

CHUNKS = [
    ListedChunk(
        ChunkId("a", str(number)), SkillChunk(str(number), f"Chunk {number}", "Text.", ChunkCategory.RULES)
    )
    for number in range(40)
]


class CountingEmbedder:
    """The vector of a text is the axis of the number in it."""

    def __init__(self) -> None:
        self.space = Space("first", 64)
        self.batches: list[int] = []
        self.chunks_fail = False

    async def embed(self, texts: Sequence[str], side: Side, *, space_id: str = "", timeout_s: float) -> Embedded:
        if side is Side.CHUNK:
            self.batches.append(len(texts))
            if self.chunks_fail:
                raise Unavailable("busy", code="embedding_unavailable")
            assert space_id
        numbers = [int(text.split()[1]) for text in texts]
        return Embedded(self.space, np.eye(self.space.dimensions, dtype=np.float32)[numbers])


@pytest.fixture
def embedder() -> CountingEmbedder:
    return CountingEmbedder()


@pytest.fixture
def nearness(embedder: CountingEmbedder) -> Nearness:
    return Nearness(CHUNKS, embedder, timeout_s=1)


async def refusal(nearness: Nearness) -> str:
    with pytest.raises(Unavailable) as refused:
        await nearness.to("Question 7", timeout_s=1)
    return refused.value.code


async def nearest(nearness: Nearness) -> str:
    near = await nearness.to("Question 7", timeout_s=1)
    assert len(near) == len(CHUNKS)
    return max(near, key=lambda chunk: near[chunk]).chunk


async def until_filled() -> None:
    """The embedder of these tests never waits, so one turn of the loop lets the background end."""
    await asyncio.sleep(0)


async def test_vectors_are_computed_once_in_batches_behind_the_first_question(
    nearness: Nearness, embedder: CountingEmbedder
) -> None:
    assert await refusal(nearness) == "skill_vectors_missing"
    await until_filled()

    assert [await nearest(nearness), await nearest(nearness)] == ["7", "7"]
    assert embedder.batches == [32, 8]


async def test_another_space_has_vectors_of_its_own(nearness: Nearness, embedder: CountingEmbedder) -> None:
    await refusal(nearness)
    await until_filled()

    for space in (Space("second", 64), Space("second", 50)):
        embedder.space = space
        assert await refusal(nearness) == "skill_vectors_missing"
        await until_filled()
        assert await nearest(nearness) == "7"
    assert embedder.batches == [32, 8] * 3


async def test_a_failure_is_tried_again_with_the_next_question(
    nearness: Nearness, embedder: CountingEmbedder
) -> None:
    embedder.chunks_fail = True
    for _ in range(2):
        assert await refusal(nearness) == "skill_vectors_missing"
        await until_filled()
    embedder.chunks_fail = False
    await refusal(nearness)
    await until_filled()

    assert await nearest(nearness) == "7"
    assert embedder.batches == [32, 32, 32, 8]


async def test_questions_that_come_together_have_the_vectors_computed_once(
    nearness: Nearness, embedder: CountingEmbedder
) -> None:
    assert set(await asyncio.gather(*(refusal(nearness) for _ in range(5)))) == {"skill_vectors_missing"}
    await until_filled()

    assert embedder.batches == [32, 8]


async def test_closing_leaves_off(embedder: CountingEmbedder) -> None:
    nearness = Nearness(CHUNKS, embedder, timeout_s=1)
    await nearness.close()
    await refusal(nearness)
    await nearness.close()

    assert embedder.batches == []
