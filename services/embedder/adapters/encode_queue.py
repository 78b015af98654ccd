import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

import numpy as np

from kbmesh.errors import ResourceExhausted, Unavailable
from services.embedder.domain.encoding import Encoded, InputType, Lane, Tokens, Vectors, shortest_first
from services.embedder.ports import Encoder

MERGED_TEXTS: Final = 32
DRAIN_TIMEOUT_S: Final = 10
FRESH_PER_REFILL: Final = 8
"""Slices of fresh uploads to one of refilling, where both wait: a space that is being built gets done even on a
machine that is never idle."""


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    encoder: Encoder
    texts: Sequence[str]
    input_type: InputType
    answer: asyncio.Future[Encoded]
    tokens: list[Tokens] | None = None
    """None: they are to be made where the job is encoded, which is quicker for a few texts."""

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def finish(self, encoded: Encoded) -> None:
        if not self.answer.done():
            self.answer.set_result(encoded)


_Slices = Callable[[list[Tokens]], list[list[int]]]
_Steps = Iterator[list[Encoded] | None]
_Large = deque[tuple[_Job, _Steps]]


class EncodeQueue:
    """One thread for the models of this process, shared by callers that wait and by work in the background.

    Callers go first, and those that wait for the same model at the same time are encoded together. What is more
    than a slice is cut into slices of neighbours in length: little padding, and a caller with a query waits for
    one slice at most, also where another caller has many texts. Between two slices of a large piece of work there
    is room for a small one. Refilling gets what is left, and a slice now and then. Large work is made into tokens
    while other is being encoded.
    """

    def __init__(self, *, slice_size: int = 8, slice_tokens: int = 1024, max_waiting_texts: int = 256) -> None:
        """
        Args:
            slice_size: texts in one call of an encoder, at most.
            slice_tokens: tokens in one call, padding included, at most; a longer text has a call to itself.
            max_waiting_texts: of callers; more are refused.
        """
        self._slice_size = slice_size
        self._slices: _Slices = partial(shortest_first, size=slice_size, max_tokens=slice_tokens)
        self._max_waiting_texts = max_waiting_texts
        self._waiting_texts = 0
        self._callers: deque[_Job] = deque()
        self._large_callers: _Large = deque()
        self._fresh: _Large = deque()
        self._refill: _Large = deque()
        self._fresh_in_a_row = 0
        self._open: set[_Job] = set()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "encoder")
        self._running = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Serves; on exit finishes, bounded, what waits."""
        worker = asyncio.create_task(self._work(), name="encode queue")
        self._running = True
        try:
            yield self
        finally:
            self._running = False
            if self._open:
                await asyncio.wait([job.answer for job in self._open], timeout=DRAIN_TIMEOUT_S)
            worker.cancel()
            await asyncio.wait([worker])
            for job in self._open:
                job.fail(Unavailable("the embedder is stopping"))
            # A call that is running ends by itself, within the time of one slice.
            await asyncio.to_thread(self._thread.shutdown)

    async def load(self, load: Callable[[], Encoder]) -> "QueuedEncoder":
        """A model that is encoded with in this queue's thread, where `load` is called, too."""
        # In this context, so that what is logged there names the service.
        encoder = await asyncio.get_running_loop().run_in_executor(self._thread, copy_context().run, load)
        return QueuedEncoder(self, encoder)

    async def encode(self, encoder: Encoder, texts: Sequence[str], input_type: InputType, lane: Lane) -> Encoded:
        """As TextEncoder.encode, with `encoder`."""
        if not self._running:
            raise Unavailable("the embedder is stopping")
        if lane is not Lane.CALLER:
            return await self._encode_large(
                self._fresh if lane is Lane.FRESH else self._refill, encoder, texts, input_type
            )
        if self._waiting_texts + len(texts) > self._max_waiting_texts:
            raise ResourceExhausted(f"{self._waiting_texts} texts wait for the encoder already; try again later")
        self._waiting_texts += len(texts)
        try:
            if len(texts) > self._slice_size:
                return await self._encode_large(self._large_callers, encoder, texts, input_type)
            job = _Job(encoder, texts, input_type, asyncio.get_running_loop().create_future())
            self._callers.append(job)
            return await self._answer(job)
        finally:
            self._waiting_texts -= len(texts)

    async def _encode_large(
        self, line: _Large, encoder: Encoder, texts: Sequence[str], input_type: InputType
    ) -> Encoded:
        tokens = await asyncio.to_thread(encoder.tokenize, texts, input_type)
        job = _Job(encoder, texts, input_type, asyncio.get_running_loop().create_future(), tokens)
        line.append((job, _steps([job], self._slices)))
        return await self._answer(job)

    async def _answer(self, job: _Job) -> Encoded:
        self._open.add(job)
        self._arrived.set()
        try:
            return await job.answer
        finally:
            self._open.discard(job)

    async def _work(self) -> None:
        while True:
            if self._callers:
                jobs = self._take_callers()
                if not await self._encode_together(jobs):
                    # One text in there is bad: nobody else shall pay for it.
                    for job in jobs:
                        await self._encode_together([job])
            elif self._large_callers:
                await self._advance(self._large_callers)
            elif self._fresh and not (self._refill and self._fresh_in_a_row >= FRESH_PER_REFILL):
                self._fresh_in_a_row += 1
                await self._advance(self._fresh)
            elif self._refill:
                self._fresh_in_a_row = 0
                await self._advance(self._refill)
            else:
                self._arrived.clear()
                await self._arrived.wait()

    def _take_callers(self) -> list[_Job]:
        """Those that have waited longest, as far as they want the same model."""
        taken: list[_Job] = []
        while self._callers and sum(len(job.texts) for job in taken) < MERGED_TEXTS:
            if taken and self._callers[0].encoder is not taken[0].encoder:
                break
            job = self._callers.popleft()
            if not job.answer.done():  # else its caller has gone
                taken.append(job)
        return taken

    async def _encode_together(self, jobs: list[_Job]) -> bool:
        """False: the encoder failed and nobody has been told, for there are several jobs."""
        steps = _steps(jobs, self._slices)
        while not all(job.answer.done() for job in jobs):
            if error := await self._step(steps, jobs):
                if len(jobs) > 1:
                    return False
                jobs[0].fail(error)
        return True

    async def _advance(self, line: _Large) -> None:
        job, steps = line[0]
        if not job.answer.done() and (error := await self._step(steps, [job])):
            job.fail(error)
        if job.answer.done():
            line.popleft()
        elif small := next((other for other in line if len(other[0].texts) <= self._slice_size), None):
            # One for each slice of the large one, so that this goes on, too.
            line.remove(small)
            line.appendleft(small)

    async def _step(self, steps: _Steps, jobs: list[_Job]) -> BaseException | None:
        call = asyncio.get_running_loop().run_in_executor(self._thread, next, steps)
        await asyncio.wait([call])
        if error := call.exception():
            return error
        for job, encoded in zip(jobs, call.result() or (), strict=False):
            job.finish(encoded)
        return None


class QueuedEncoder:
    """Port TextEncoder: a model on this machine, in the queue with what else runs there."""

    def __init__(self, queue: EncodeQueue, encoder: Encoder) -> None:
        self._queue = queue
        self._encoder = encoder

    @property
    def dimensions(self) -> int:
        return self._encoder.dimensions

    async def encode(self, texts: Sequence[str], input_type: InputType, lane: Lane) -> Encoded:
        return await self._queue.encode(self._encoder, texts, input_type, lane)


def _steps(jobs: Sequence[_Job], slices_of: _Slices) -> _Steps:
    """One call of the encoder per step; the last step gives the answers, one for each job."""
    encoder = jobs[0].encoder
    tokens = [job.tokens or encoder.tokenize(job.texts, job.input_type) for job in jobs]
    merged = [text for of_job in tokens for text in of_job]
    rows: dict[int, Vectors] = {}
    slices = slices_of(merged)
    for number, indices in enumerate(slices, start=1):
        rows.update(zip(indices, encoder.encode([merged[index] for index in indices]), strict=True))
        if number < len(slices):
            yield None
    vectors = np.stack([rows[index] for index in range(len(merged))])
    parts = np.split(vectors, np.cumsum([len(of_job) for of_job in tokens])[:-1])
    yield [
        Encoded(part, tuple(map(len, of_job)), tuple(text.truncated for text in of_job))
        for part, of_job in zip(parts, tokens, strict=True)
    ]
