"""The highest resident size of processes while something happens."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import psutil

INTERVAL_S: Final = 0.01


class PeakMemory:
    """Looks every 10 ms for as long as the context lasts; `idle` is what it was at the start. Bytes."""

    def __init__(self, resident: Callable[[], int]) -> None:
        self._resident = resident
        self.idle = 0
        self.peak = 0

    @classmethod
    def of(cls, pid: int) -> Self:
        process = psutil.Process(pid)
        return cls(lambda: int(process.memory_info().rss))

    @classmethod
    def of_children(cls) -> Self:
        """Of this process's largest child, together with what that one has started."""
        return cls(_largest_child)

    async def __aenter__(self) -> Self:
        self.idle = self.peak = self._resident()
        self._looking = asyncio.create_task(self._look())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._looking.cancel()

    async def _look(self) -> None:
        while True:
            self.peak = max(self.peak, await asyncio.to_thread(self._resident))
            await asyncio.sleep(INTERVAL_S)


def _largest_child() -> int:
    sizes = [0]
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            family = [child, *child.children(recursive=True)]
            sizes.append(sum(_resident(process) for process in family))
    return max(sizes)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
