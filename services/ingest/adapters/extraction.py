"""Extraction in a child process, which may hang, swell or die without harm to this one."""

import asyncio
import math
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

import anyio
from anyio import BrokenWorkerProcess, CapacityLimiter, to_process

from kbmesh.errors import Unavailable
from services.ingest.domain.chunking import chunk, no_header
from services.ingest.domain.content_type import ContentType
from services.ingest.domain.extraction import ChunkDraft, ExtractionFailed
from services.ingest.domain.headers import Origin, compose_header

if TYPE_CHECKING:
    from services.ingest.adapters.splitter import TokenizerSplitter

T = TypeVar("T")
Args = TypeVarTuple("Args")

GIB = 2**30
_START_TIMEOUT = 120.0
_ORPHAN_GRACE = 30.0

# A child that has loaded its libraries is worth its memory, and the next document should not wait for another.
to_process.WORKER_MAX_IDLE_TIME = sys.maxsize


class Child:
    """Up to `processes` warm processes that run one function each at a time, within a time (seconds) and a memory
    limit (bytes).

    The memory limit counts what a process has allocated (RLIMIT_DATA), libraries at rest included.
    """

    def __init__(self, *, memory_bytes: int = 4 * GIB, processes: int = 1) -> None:
        self._memory_bytes = memory_bytes
        self._limiter = CapacityLimiter(processes)

    async def run(self, function: Callable[[*Args], T], *args: *Args, timeout: float) -> T:
        """The picklable function's picklable result. Raises what it raises, and ExtractionFailed
        (extraction_timeout, extraction_memory, extraction_crashed); a later call then gets a new process."""
        try:
            with anyio.fail_after(timeout):
                return await to_process.run_sync(
                    _guarded, self._memory_bytes, timeout, function, args, cancellable=True, limiter=self._limiter
                )
        except TimeoutError as error:
            raise ExtractionFailed(f"gave up after {timeout:g} s", code="extraction_timeout") from error
        except BrokenWorkerProcess as error:
            raise ExtractionFailed("the extraction process died", code="extraction_crashed") from error
        except MemoryError as error:
            await self._discard()
            limit = f"{self._memory_bytes / GIB:.1f} GiB"
            raise ExtractionFailed(f"needs more than {limit} of memory", code="extraction_memory") from error

    async def _discard(self) -> None:
        """Ends the process that ran out of memory, if nobody has met it yet."""
        with suppress(BrokenWorkerProcess):
            await to_process.run_sync(_leave_if_spoiled, cancellable=True, limiter=self._limiter)


class _Cold(Exception):
    """The process has not loaded its libraries, or is to be discarded."""


class ChildExtractor:
    """Turns files into chunks, as many at a time as there are processes; another caller waits. Pages of a PDF
    without text are read by OCR where its languages are given."""

    def __init__(
        self,
        tokenizer_path: Path,
        *,
        timeout: float = 120.0,
        memory_bytes: int = 4 * GIB,
        processes: int = 1,
        ocr_languages: str | None = None,
    ) -> None:
        self._tokenizer_path = tokenizer_path
        self._ocr_languages = ocr_languages
        self._timeout = timeout
        self._processes = processes
        self._child = Child(memory_bytes=memory_bytes, processes=processes)
        self._turns = CapacityLimiter(processes)

    async def warm(self) -> None:
        """Starts one process and its imports. Raises Unavailable if it does not come up."""
        async with self._turns:
            await self._warm()

    async def warm_all(self) -> None:
        """Starts all processes and their imports, one being there. Raises Unavailable if one does not come up."""
        warmed: set[int] = set()

        async def warm_one() -> None:
            async with self._turns:
                warmed.add(await self._warm())

        while len(warmed) < self._processes:  # those that are at work may be met only later
            await asyncio.gather(*(warm_one() for _ in range(self._processes)))

    async def extract(
        self, path: Path, content_type: ContentType, origin: Origin | None = None
    ) -> list[ChunkDraft]:
        """The chunks of a file, with headers if its `origin` is told; none if it holds no text.

        Raises ExtractionFailed, UnsupportedType.
        """
        arguments = (path, content_type, origin, self._tokenizer_path, self._ocr_languages)
        async with self._turns:
            while True:
                # The time to load libraries after a lost process is not the next document's fault.
                await self._warm()
                try:
                    return await self._child.run(_extract, *arguments, timeout=self._timeout)
                except _Cold:
                    continue  # somebody else got the one that had just been warmed

    async def _warm(self) -> int:
        """The id of the process."""
        try:
            try:
                return await self._load()
            except ExtractionFailed as error:
                if error.code != "extraction_crashed":
                    raise
                # A process that died while idle shows only now.
                return await self._load()
        except (ExtractionFailed, OSError) as error:
            raise Unavailable(f"the extraction process does not start: {error}") from error

    async def _load(self) -> int:
        return await self._child.run(_warm, self._tokenizer_path, timeout=_START_TIMEOUT)


def _guarded(memory_bytes: int, timeout: float, function: Callable[[*Args], T], args: tuple[*Args]) -> T:
    """Runs in the child."""
    # macOS knows the limit but may refuse it, and does not enforce it.
    with suppress(OSError, ValueError) if sys.platform == "darwin" else nullcontext():
        _, ceiling = resource.getrlimit(resource.RLIMIT_DATA)
        limit = memory_bytes if ceiling == resource.RLIM_INFINITY else min(memory_bytes, ceiling)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, ceiling))
    # The default action of SIGALRM ends a child whose parent is no longer there to kill it.
    signal.alarm(math.ceil(timeout + _ORPHAN_GRACE))
    try:
        with _silent_stdout():
            return function(*args)
    except MemoryError:
        _state.spoiled = True
        raise
    finally:
        signal.alarm(0)


@contextmanager
def _silent_stdout() -> Iterator[None]:
    """Keeps what libraries written in C print out of the pipe that carries the result."""
    pipe = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(pipe, 1)
        os.close(pipe)
        os.close(nowhere)


class _State:
    """Of the child."""

    spoiled = False
    """It has run out of memory: its libraries may be half loaded."""
    loaded = False


_state = _State()


def _leave_if_spoiled() -> None:
    if _state.spoiled:
        os._exit(1)


def _warm(tokenizer_path: Path) -> int:
    _leave_if_spoiled()
    # spaCy loads torch where it is installed, half of the child's memory, and this work makes no use of it.
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]  # the documented way to forbid an import
    # Imported here because only the child may pay for it.
    from services.ingest.adapters import unstructured

    if not _state.loaded:
        unstructured.warm()
        _splitter(tokenizer_path)
        _state.loaded = True
    return os.getpid()


def _extract(
    path: Path, content_type: ContentType, origin: Origin | None, tokenizer_path: Path, ocr_languages: str | None
) -> list[ChunkDraft]:
    if _state.spoiled or not _state.loaded:
        raise _Cold
    from services.ingest.adapters import unstructured

    splitter = _splitter(tokenizer_path)
    header = partial(compose_header, origin, splitter) if origin else no_header
    return chunk(unstructured.extract(path, content_type, ocr_languages), splitter, header)


@lru_cache(maxsize=1)
def _splitter(tokenizer_path: Path) -> "TokenizerSplitter":
    from services.ingest.adapters.splitter import TokenizerSplitter

    return TokenizerSplitter(tokenizer_path)
