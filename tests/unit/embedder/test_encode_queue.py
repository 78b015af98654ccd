import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from kbmesh.errors import ResourceExhausted, Unavailable
from services.embedder.adapters.encode_queue import EncodeQueue, QueuedEncoder
from services.embedder.domain.encoding import InputType, Lane
from services.embedder.ports import Encoder

QUERY, DOCUMENT = InputType.QUERY, InputType.DOCUMENT
CALLER, FRESH, REFILL = Lane.CALLER, Lane.FRESH, Lane.REFILL
BAD = "x" * 666


@asynccontextmanager
async def running(queue: EncodeQueue, encoder: Encoder) -> AsyncIterator[QueuedEncoder]:
    async with queue.running():
        yield await queue.load(lambda: encoder)


def words(count: int) -> str:
    return " ".join(["word"] * count)


async def started(word_encoder: Any, calls: int = 1) -> None:
    """Waits until the encoder is inside of a call."""
    for _ in range(calls):
        assert await asyncio.to_thread(word_encoder.entered.acquire, timeout=10)


async def settled(queue: EncodeQueue, jobs: int) -> None:
    """Waits until so many are in the queue, counting the one in progress."""
    async with asyncio.timeout(10):
        while len(queue._open) < jobs:
            await asyncio.sleep(0.001)


async def test_answers_keep_the_order_of_the_texts(word_encoder: Any) -> None:
    lengths = [5, 1, 9, 2, 7, 3, 8, 4, 6, 10, 12, 11]
    queue = EncodeQueue(slice_size=4)
    async with running(queue, word_encoder) as model:
        for encoded in (
            await model.encode([words(n) for n in lengths], DOCUMENT, FRESH),
            await model.encode([words(n) for n in lengths], QUERY, CALLER),
        ):
            assert encoded.vectors[:, 0].tolist() == lengths
            assert encoded.token_counts == tuple(lengths)


async def test_neighbours_in_length_share_a_slice(word_encoder: Any) -> None:
    queue = EncodeQueue(slice_size=2)
    async with running(queue, word_encoder) as model:
        await model.encode([words(n) for n in (9, 1, 8, 2)], DOCUMENT, FRESH)
    assert word_encoder.calls == [[1, 2], [8, 9]]


async def test_only_one_thread_ever_touches_the_encoder(word_encoder: Any) -> None:
    queue = EncodeQueue(slice_size=1)
    async with running(queue, word_encoder) as model:
        await asyncio.gather(
            model.encode([words(3)] * 5, DOCUMENT, FRESH),
            *(model.encode([words(2)], QUERY, CALLER) for _ in range(5)),
        )
    assert len(word_encoder.threads) == 1


async def test_a_query_goes_between_two_slices_of_documents(word_encoder: Any) -> None:
    word_encoder.gated = True
    queue = EncodeQueue(slice_size=2)
    async with running(queue, word_encoder) as model:
        documents = asyncio.create_task(model.encode([words(20)] * 6, DOCUMENT, FRESH))
        await started(word_encoder)
        query = asyncio.create_task(model.encode([words(3)], QUERY, CALLER))
        await settled(queue, 2)
        word_encoder.gate.release(4)
        assert (await query).token_counts == (3,)
        assert len((await documents).vectors) == 6
    assert word_encoder.calls == [[20, 20], [3], [20, 20], [20, 20]]


async def test_small_background_work_goes_between_two_slices_of_large_work(word_encoder: Any) -> None:
    word_encoder.gated = True
    queue = EncodeQueue(slice_size=2)
    async with running(queue, word_encoder) as model:
        large = asyncio.create_task(model.encode([words(20)] * 6, DOCUMENT, FRESH))
        await started(word_encoder)
        small = []
        for n in (3, 4):
            small.append(asyncio.create_task(model.encode([words(n)], DOCUMENT, FRESH)))
            await settled(queue, 1 + len(small))
        word_encoder.gate.release(5)
        assert (await small[0]).token_counts == (3,)
        await asyncio.gather(large, *small)
    assert word_encoder.calls == [[20, 20], [3], [20, 20], [4], [20, 20]]


async def test_queries_that_wait_together_are_encoded_together(word_encoder: Any) -> None:
    word_encoder.gated = True
    queue = EncodeQueue(slice_size=8)
    async with running(queue, word_encoder) as model:
        first = asyncio.create_task(model.encode([words(1)], QUERY, CALLER))
        await started(word_encoder)
        others = [asyncio.create_task(model.encode([words(n), words(n)], QUERY, CALLER)) for n in (2, 3, 4)]
        await settled(queue, 4)
        word_encoder.gate.release(2)
        answers = await asyncio.gather(first, *others)
    assert [answer.token_counts for answer in answers] == [(1,), (2, 2), (3, 3), (4, 4)]
    assert word_encoder.calls == [[1], [2, 2, 3, 3, 4, 4]]


async def test_a_bad_text_fails_its_own_caller_alone(word_encoder: Any) -> None:
    queue = EncodeQueue()
    async with running(queue, word_encoder) as model:
        good, bad = await asyncio.gather(
            model.encode([words(2)], QUERY, CALLER), model.encode([BAD], QUERY, CALLER), return_exceptions=True
        )
        assert not isinstance(good, BaseException)
        assert good.token_counts == (2,)
        assert isinstance(bad, RuntimeError)
        with pytest.raises(RuntimeError):
            await model.encode([words(2), BAD], DOCUMENT, FRESH)
        assert (await model.encode([words(4)], DOCUMENT, FRESH)).token_counts == (4,)


async def test_callers_beyond_the_bound_are_refused_and_background_work_is_not(word_encoder: Any) -> None:
    word_encoder.gated = True
    queue = EncodeQueue(max_waiting_texts=3)
    async with running(queue, word_encoder) as model:
        waiting = [asyncio.create_task(model.encode([words(1)], QUERY, CALLER)) for _ in range(3)]
        await started(word_encoder)
        with pytest.raises(ResourceExhausted):
            await model.encode([words(1)], QUERY, CALLER)
        documents = asyncio.create_task(model.encode([words(1)], DOCUMENT, FRESH))
        word_encoder.gated = False
        word_encoder.gate.release()
        await asyncio.gather(*waiting, documents)
        assert (await model.encode([words(1)] * 3, QUERY, CALLER)).token_counts == (1, 1, 1)


async def test_work_whose_caller_has_gone_is_dropped(word_encoder: Any) -> None:
    word_encoder.gated = True
    queue = EncodeQueue(slice_size=1)
    async with running(queue, word_encoder) as model:
        documents = asyncio.create_task(model.encode([words(7)] * 5, DOCUMENT, FRESH))
        await started(word_encoder)
        gone = asyncio.create_task(model.encode([words(5)], QUERY, CALLER))
        kept = asyncio.create_task(model.encode([words(6)], QUERY, CALLER))
        await settled(queue, 3)
        for task in (documents, gone):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        word_encoder.gated = False
        word_encoder.gate.release()
        assert (await kept).token_counts == (6,)
    assert word_encoder.calls == [[7], [6]]


async def test_nothing_is_answered_after_the_end(word_encoder: Any) -> None:
    async with running(EncodeQueue(), word_encoder) as model:
        assert model.dimensions == 2
    with pytest.raises(Unavailable):
        await model.encode([words(1)], DOCUMENT, FRESH)


async def test_what_waits_at_the_end_is_still_answered(word_encoder: Any) -> None:
    word_encoder.gated = True
    queue = EncodeQueue(slice_size=1)
    async with running(queue, word_encoder) as model:
        waiting = asyncio.create_task(model.encode([words(2)] * 3, DOCUMENT, FRESH))
        await started(word_encoder)
        word_encoder.gate.release(3)
    assert (await waiting).token_counts == (2, 2, 2)


async def test_an_encoder_that_hangs_does_not_hold_up_the_end_for_ever(
    word_encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.embedder.adapters.encode_queue.DRAIN_TIMEOUT_S", 0.05)
    word_encoder.gated = True
    queue = EncodeQueue(slice_size=1)
    async with running(queue, word_encoder) as model:
        waiting = asyncio.create_task(model.encode([words(2)] * 3, DOCUMENT, FRESH))
        await started(word_encoder)
        asyncio.get_running_loop().call_later(0.2, word_encoder.gate.release)
    with pytest.raises(Unavailable):
        await waiting


async def test_a_model_that_does_not_load_fails_the_start() -> None:
    def load() -> Any:
        raise FileNotFoundError("no model")

    async with EncodeQueue().running() as queue:
        with pytest.raises(FileNotFoundError):
            await queue.load(load)


async def test_refilling_goes_after_fresh_uploads_and_yet_goes_on(
    word_encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.embedder.adapters.encode_queue.FRESH_PER_REFILL", 2)
    word_encoder.gated = True
    queue = EncodeQueue(slice_size=1)
    async with running(queue, word_encoder) as model:
        refill = asyncio.create_task(model.encode([words(9)] * 3, DOCUMENT, REFILL))
        await started(word_encoder)
        fresh = asyncio.create_task(model.encode([words(5)] * 3, DOCUMENT, FRESH))
        query = asyncio.create_task(model.encode([words(1)], QUERY, CALLER))
        await settled(queue, 3)
        word_encoder.gated = False
        word_encoder.gate.release()
        await asyncio.gather(refill, fresh, query)
    assert word_encoder.calls == [[9], [1], [5], [5], [9], [5], [9]]


async def test_callers_of_two_models_wait_in_one_line_and_are_not_mixed(word_encoder: Any) -> None:
    other = type(word_encoder)()
    word_encoder.gated = True
    queue = EncodeQueue()
    async with running(queue, word_encoder) as model:
        second = QueuedEncoder(queue, other)
        first = asyncio.create_task(model.encode([words(1)], QUERY, CALLER))
        await started(word_encoder)
        others = [
            asyncio.create_task(one.encode([words(n)], QUERY, CALLER)) for one, n in ((second, 2), (model, 3))
        ]
        await settled(queue, 3)
        word_encoder.gate.release(2)
        await asyncio.gather(first, *others)
    assert (word_encoder.calls, other.calls) == ([[1], [3]], [[2]])


async def test_a_query_goes_between_two_slices_of_another_caller(word_encoder: Any) -> None:
    word_encoder.gated = True
    queue = EncodeQueue(slice_size=2)
    async with running(queue, word_encoder) as model:
        many = asyncio.create_task(model.encode([words(20)] * 4, DOCUMENT, CALLER))
        await started(word_encoder)
        query = asyncio.create_task(model.encode([words(3)], QUERY, CALLER))
        await settled(queue, 2)
        word_encoder.gate.release(3)
        await asyncio.gather(many, query)
    assert word_encoder.calls == [[20, 20], [3], [20, 20]]
