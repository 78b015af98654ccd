from collections.abc import Sequence
from uuid import UUID, uuid4

import numpy as np
import pytest

from kbmesh.errors import InvalidArgument, NotFound
from services.embedder.domain.chunks import PendingChunk, ReadyChunks, Source, Stored
from services.embedder.domain.encoding import BadVector, Encoded, InputType, Lane, Vectors
from services.embedder.domain.spaces import Space
from services.embedder.handlers import embed_chunks, embed_texts, find_model, give_up, list_models
from tests.support.vectors import OneSpace


class FixedEncoder:
    dimensions = 2

    def __init__(self, *vector: float) -> None:
        self.vector = vector
        self.texts: list[str] = []

    async def encode(self, texts: Sequence[str], input_type: InputType, lane: Lane) -> Encoded:
        self.texts += texts
        vectors = np.array([self.vector] * len(texts), np.float32)
        return Encoded(vectors, (1,) * len(texts), (False,) * len(texts))


class OneSourceStore:
    def __init__(self, *pending: PendingChunk) -> None:
        self._pending = list(pending)
        self.stored: list[tuple[list[UUID], Vectors]] = []
        self.failed: list[tuple[Source, str]] = []

    async def pending(self, batch: Sequence[ReadyChunks], space: Space) -> list[PendingChunk]:
        return self._pending

    async def store(
        self, batch: Sequence[ReadyChunks], chunk_ids: Sequence[UUID], vectors: Vectors, space: Space
    ) -> Stored:
        self.stored.append((list(chunk_ids), vectors))
        return Stored(len(chunk_ids), 1)

    async def mark_failed(self, source: Source, *, code: str, detail: str) -> None:
        self.failed.append((source, code))


SPACE = Space("fixed", 2)
SOURCE = Source("skill_chunk", "skill-1", 1)
READY = [ReadyChunks(SOURCE, (uuid4(),))]


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        ([], "bad_text_count"),
        (["a"] * 33, "bad_text_count"),
        (["a", ""], "empty_text"),
        ([" \n\t"], "empty_text"),
        (["é" * 16_385], "text_too_long"),
    ],
    ids=["none", "too many", "empty", "blank", "too long"],
)
async def test_texts_that_cannot_be_embedded_are_refused(texts: list[str], code: str) -> None:
    encoder = FixedEncoder(1, 0)
    with pytest.raises(InvalidArgument) as refused:
        await embed_texts(texts, InputType.QUERY, space=SPACE, models={"fixed": encoder})
    assert refused.value.code == code
    assert encoder.texts == []


async def test_the_largest_request_is_accepted() -> None:
    encoded = await embed_texts(
        ["é" * 16_384] * 32, InputType.QUERY, space=SPACE, models={"fixed": FixedEncoder(1, 0)}
    )
    assert encoded.vectors.shape == (32, 2)


async def test_a_vector_without_direction_is_neither_answered_nor_stored() -> None:
    store = OneSourceStore(PendingChunk(uuid4(), "text"))
    with pytest.raises(BadVector):
        await embed_texts(["text"], InputType.QUERY, space=SPACE, models={"fixed": FixedEncoder(0, 0)})
    for bad in (FixedEncoder(0, 0), FixedEncoder(float("nan"), 1), FixedEncoder(1)):
        with pytest.raises(BadVector):
            await embed_chunks(READY, spaces=OneSpace(SPACE), models={"fixed": bad}, store=store)
    assert store.stored == []


async def test_only_what_is_pending_is_encoded() -> None:
    chunk = PendingChunk(uuid4(), "the only one left")
    encoder, store = FixedEncoder(1, 0), OneSourceStore(chunk)
    await embed_chunks(READY, spaces=OneSpace(SPACE), models={"fixed": encoder}, store=store)
    assert encoder.texts == [chunk.content]
    assert [ids for ids, _ in store.stored] == [[chunk.id]]


async def test_a_batch_with_nothing_pending_still_advances_its_sources() -> None:
    encoder, store = FixedEncoder(1, 0), OneSourceStore()
    await embed_chunks(READY, spaces=OneSpace(SPACE), models={"fixed": encoder}, store=store)
    assert encoder.texts == []
    assert [(ids, vectors.shape) for ids, vectors in store.stored] == [([], (0, 2))]


async def test_giving_up_says_that_embedding_failed() -> None:
    store = OneSourceStore()
    await give_up(SOURCE, store=store)
    assert store.failed == [(SOURCE, "embedding_failed")]


async def test_vectors_are_cut_to_the_dimensions_of_the_space_and_unit_again() -> None:
    encoded = await embed_texts(["text"], InputType.QUERY, space=SPACE, models={"fixed": FixedEncoder(3, 4, 12)})
    assert encoded.vectors[0].tolist() == pytest.approx([0.6, 0.8])
    with pytest.raises(BadVector):
        await embed_texts(["text"], InputType.QUERY, space=SPACE, models={"fixed": FixedEncoder(0, 0, 1)})


async def test_a_space_of_a_model_that_is_not_configured_cannot_be_encoded_for() -> None:
    with pytest.raises(NotFound) as refused:
        await embed_texts(["text"], InputType.QUERY, space=Space("other", 2), models={"fixed": FixedEncoder(1, 0)})
    assert refused.value.code == "model_not_configured"


async def test_a_space_of_a_model_that_is_not_configured_is_neither_found_nor_listed() -> None:
    spaces, models = OneSpace(Space("other", 2)), {SPACE.model: FixedEncoder(1, 0)}

    with pytest.raises(NotFound):
        await find_model("other_2", None, spaces=spaces, models=models)

    assert list_models(spaces=spaces, models=models) == {SPACE.model: 2}
