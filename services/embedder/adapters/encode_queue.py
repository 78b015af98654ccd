import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass
from typing import Final

import numpy as np

from kbmesh.errors import ResourceExhausted, Unavailable
from services.embedder.domain.encoding import Encoded, InputType, Vectors, shortest_first
from services.embedder.ports import Encoder

MERGED_TEXTS: Final = 32
DRAIN_TIMEOUT_S: Final = 10


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    texts: Sequence[str]
    input_type: InputType
    answer: asyncio.Future[Encoded]

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def finish(self, encoded: Encoded) -> None:
        if not self.answer.done():
            self.answer.set_result(encoded)


_Steps = Iterator[list[Encoded] | None]


class EncodeQueue:
    """One encoder in one thread, shared by callers that wait and by work in the background.

    Callers go first, and those that wait at the same time are encoded together. Background work is cut into
    slices of neighbours in length: little padding, and a caller waits for one slice at most. Between two slices of
    a large piece of background work there is room for a small one.
    """

    def __init__(self, *, slice_size: int = 8, max_waiting_texts: int = 256) -> None:
        """
        Args:
            slice_size: texts in one call of the encoder.
            max_waiting_texts: of callers; more are refused.
        """
        self._slice_size = slice_size
        self._max_waiting_texts = max_waiting_texts
        self._waiting_texts = 0
        self._callers: deque[_Job] = deque()
        self._background: deque[tuple[_Job, _Steps]] = deque()
        self._open: set[_Job] = set()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "encoder")
        self._encoder: Encoder | None = None

    @asynccontextmanager
    async def running(self, load: Callable[[], Encoder]) -> AsyncIterator[Encoder]:
        """Calls `load` in the encoder thread, then serves; on exit finishes, bounded, what waits."""
        try:
            # In this context, so that what is logged there names the service.
            encoder = await asyncio.get_running_loop().run_in_executor(self._thread, copy_context().run, load)
            self._encoder = encoder
            worker = asyncio.create_task(self._work(encoder), name="encode queue")
            try:
                yield encoder
            finally:
                self._encoder = None
                if self._open:
                    await asyncio.wait([job.answer for job in self._open], timeout=DRAIN_TIMEOUT_S)
                worker.cancel()
                await asyncio.wait([worker])
                for job in self._open:
                    job.fail(Unavailable("the embedder is stopping"))
        finally:
            # A call that is running ends by itself, within the time of one slice.
            await asyncio.to_thread(self._thread.shutdown)

    @property
    def dimensions(self) -> int:
        return self._loaded().dimensions

    async def encode(self, texts: Sequence[str], input_type: InputType) -> Encoded:
        if self._waiting_texts + len(texts) > self._max_waiting_texts:
            raise ResourceExhausted(f"{self._waiting_texts} texts wait for the encoder already; try again later")
        self._waiting_texts += len(texts)
        try:
            self._loaded()
            job = _new_job(texts, input_type)
            self._callers.append(job)
            return await self._answer(job)
        finally:
            self._waiting_texts -= len(texts)

    async def encode_in_background(self, texts: Sequence[str]) -> Encoded:
        encoder = self._loaded()
        job = _new_job(texts, InputType.DOCUMENT)
        self._background.append((job, _steps(encoder, [job], self._slice_size)))
        return await self._answer(job)

    def _loaded(self) -> Encoder:
        if self._encoder is None:
            raise Unavailable("the model is loading, or the embedder is stopping", code="model_loading")
        return self._encoder

    async def _answer(self, job: _Job) -> Encoded:
        self._open.add(job)
        self._arrived.set()
        try:
            return await job.answer
        finally:
            self._open.discard(job)

    async def _work(self, encoder: Encoder) -> None:
        while True:
            if self._callers:
                jobs = self._take_callers()
                if not await self._encode_together(encoder, jobs):
                    # One text in there is bad: nobody else shall pay for it.
                    for job in jobs:
                        await self._encode_together(encoder, [job])
            elif self._background:
                await self._advance_background()
            else:
                self._arrived.clear()
                await self._arrived.wait()

    def _take_callers(self) -> list[_Job]:
        taken: list[_Job] = []
        while self._callers and sum(len(job.texts) for job in taken) < MERGED_TEXTS:
            job = self._callers.popleft()
            if not job.answer.done():  # else its caller has gone
                taken.append(job)
        return taken

    async def _encode_together(self, encoder: Encoder, jobs: list[_Job]) -> bool:
        """False: the encoder failed and nobody has been told, for there are several jobs."""
        steps = _steps(encoder, jobs, self._slice_size)
        while not all(job.answer.done() for job in jobs):
            if error := await self._step(steps, jobs):
                if len(jobs) > 1:
                    return False
                jobs[0].fail(error)
        return True

    async def _advance_background(self) -> None:
        job, steps = self._background[0]
        if not job.answer.done() and (error := await self._step(steps, [job])):
            job.fail(error)
        if job.answer.done():
            self._background.popleft()
        elif small := next((other for other in self._background if self._is_one_slice(other)), None):
            # One for each slice of the large one, so that this goes on, too.
            self._background.remove(small)
            self._background.appendleft(small)

    def _is_one_slice(self, background: tuple[_Job, _Steps]) -> bool:
        return len(background[0].texts) <= self._slice_size

    async def _step(self, steps: _Steps, jobs: list[_Job]) -> BaseException | None:
        call = asyncio.get_running_loop().run_in_executor(self._thread, next, steps)
        await asyncio.wait([call])
        if error := call.exception():
            return error
        for job, encoded in zip(jobs, call.result() or (), strict=False):
            job.finish(encoded)
        return None


def _new_job(texts: Sequence[str], input_type: InputType) -> _Job:
    return _Job(texts, input_type, asyncio.get_running_loop().create_future())


def _steps(encoder: Encoder, jobs: Sequence[_Job], slice_size: int) -> _Steps:
    """One call of the encoder per step; the last step gives the answers, one for each job."""
    tokens = [(encoder.tokenize(job.texts, job.input_type)) for job in jobs]
    merged = [text for of_job in tokens for text in of_job]
    rows: dict[int, Vectors] = {}
    slices = shortest_first(merged, slice_size)
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
