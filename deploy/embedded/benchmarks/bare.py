"""The bundled model alone, in a process of its own that is set up as the embedder's is."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

from deploy.embedded.benchmarks.report import quiet_logs
from deploy.embedded.benchmarks.throughput import SLICE, SLICE_TOKENS, encode_all
from deploy.embedded.stack import ENCODER_MEMORY
from kbmesh.models import bundled_model_path
from services.embedder.adapters.torch import TorchEncoder
from services.embedder.domain.encoding import InputType

P = ParamSpec("P")
T = TypeVar("T")


class BareModel:
    def __init__(self, process: ProcessPoolExecutor, precision: str) -> None:
        self._process = process
        self.precision = precision

    @property
    def settings(self) -> dict[str, str]:
        """Of an embedder that is to do the same: it measures which precision pays by itself otherwise."""
        return {"KBMESH_EMBEDDER_PRECISION": self.precision}

    async def encode(self, texts: Sequence[str]) -> float:
        """Seconds at its best: it has all texts at once and sorts them by length."""
        return await self._call(_encode, texts)

    async def queries(self, text: str, count: int) -> list[float]:
        """Seconds of each of `count` calls with one text, from its characters to its vector."""
        return await self._call(_queries, text, count)

    async def slice(self) -> float:
        """Seconds of one slice of the longest texts, for which a query may have to wait."""
        return await self._call(_slice)

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.wrap_future(self._process.submit(function, *args, **kwargs))


@contextmanager
def bare_model() -> Iterator[BareModel]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=quiet_logs) as process:
        own = dict(os.environ)
        os.environ.update(ENCODER_MEMORY | own)
        try:
            loading = process.submit(_load)  # which starts the process, with this environment
        finally:
            os.environ.clear()
            os.environ.update(own)
        yield BareModel(process, loading.result())


@cache
def _encoder() -> TorchEncoder:
    return TorchEncoder(bundled_model_path())


def _load() -> str:
    return _encoder().precision


def _encode(texts: Sequence[str]) -> float:
    started = time.perf_counter()
    encode_all(_encoder(), texts)
    return time.perf_counter() - started


def _queries(text: str, count: int) -> list[float]:
    encoder = _encoder()
    seconds = []
    for _ in range(count):
        started = time.perf_counter()
        encoder.encode(encoder.tokenize([text], InputType.QUERY))
        seconds.append(time.perf_counter() - started)
    return seconds


def _slice() -> float:
    encoder = _encoder()
    return _encode(["word " * encoder.max_tokens] * min(SLICE, max(1, SLICE_TOKENS // encoder.max_tokens)))
