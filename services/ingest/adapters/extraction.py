"""Extraction in a child process, which may hang, swell or die without harm to this one."""

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


class Child:
    """One warm process that runs one function at a time, within a time (seconds) and a memory limit (bytes).

    The memory limit counts what the process has allocated (RLIMIT_DATA), libraries at rest included.
    """

    def __init__(self, *, memory_bytes: int = 4 * GIB) -> None:
        self._memory_bytes = memory_bytes
        self._limiter = CapacityLimiter(1)

    async def run(self, function: Callable[[*Args], T], *args: *Args, timeout: float) -> T:
        """The picklable function's picklable result. Raises what it raises, and ExtractionFailed
        (extraction_timeout, extraction_memory, extraction_crashed); the next call then gets a new process."""
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
        """Ends the process: after running out of memory, its libraries may be half loaded."""
        with suppress(BrokenWorkerProcess):
            await to_process.run_sync(os._exit, 1, cancellable=True, limiter=self._limiter)


class ChildExtractor:
    """Turns files into chunks, one at a time; a second caller waits for its turn. Pages of a PDF without text are
    read by OCR where its languages are given."""

    def __init__(
        self,
        tokenizer_path: Path,
        *,
        timeout: float = 120.0,
        memory_bytes: int = 4 * GIB,
        ocr_languages: str | None = None,
    ) -> None:
        self._tokenizer_path = tokenizer_path
        self._ocr_languages = ocr_languages
        self._timeout = timeout
        self._child = Child(memory_bytes=memory_bytes)
        self._turn = anyio.Lock()

    async def warm(self) -> None:
        """Starts the process and its imports. Raises Unavailable if it does not come up."""
        async with self._turn:
            await self._warm()

    async def extract(
        self, path: Path, content_type: ContentType, origin: Origin | None = None
    ) -> list[ChunkDraft]:
        """The chunks of a file, with headers if its `origin` is told; none if it holds no text.

        Raises ExtractionFailed, UnsupportedType.
        """
        async with self._turn:
            # The time to load libraries after a lost process is not the next document's fault.
            await self._warm()
            return await self._child.run(
                _extract,
                path,
                content_type,
                origin,
                self._tokenizer_path,
                self._ocr_languages,
                timeout=self._timeout,
            )

    async def _warm(self) -> None:
        try:
            try:
                await self._load()
            except ExtractionFailed as error:
                if error.code != "extraction_crashed":
                    raise
                # A process that died while idle shows only now.
                await self._load()
        except (ExtractionFailed, OSError) as error:
            raise Unavailable(f"the extraction process does not start: {error}") from error

    async def _load(self) -> None:
        await self._child.run(_warm, self._tokenizer_path, timeout=_START_TIMEOUT)


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


def _warm(tokenizer_path: Path) -> None:
    # spaCy loads torch where it is installed, half of the child's memory, and this work makes no use of it.
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]  # the documented way to forbid an import
    # Imported here because only the child may pay for it.
    from services.ingest.adapters import unstructured

    unstructured.warm()
    _splitter(tokenizer_path)


def _extract(
    path: Path, content_type: ContentType, origin: Origin | None, tokenizer_path: Path, ocr_languages: str | None
) -> list[ChunkDraft]:
    from services.ingest.adapters import unstructured

    splitter = _splitter(tokenizer_path)
    header = partial(compose_header, origin, splitter) if origin else no_header
    return chunk(unstructured.extract(path, content_type, ocr_languages), splitter, header)


@lru_cache(maxsize=1)
def _splitter(tokenizer_path: Path) -> "TokenizerSplitter":
    from services.ingest.adapters.splitter import TokenizerSplitter

    return TokenizerSplitter(tokenizer_path)
