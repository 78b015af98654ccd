import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from kbmesh.errors import Unavailable


class Turns:
    """Who may extract now: as many at once as there are processes, of which large files leave one to others."""

    def __init__(
        self, processes: int, *, large_bytes: int, grow: Callable[[], Awaitable[None]], stop: asyncio.Event
    ) -> None:
        """
        Args:
            large_bytes: size from which a file is large.
            grow: starts all processes. Until the first large file needs company, one has to do.
            stop: nobody's turn comes once it is set.
        """
        self._processes = processes
        self._large_bytes = large_bytes
        self._grow = grow
        self._stop = stop
        self._any = asyncio.Semaphore(1)
        self._large = asyncio.Semaphore(max(1, processes - 1))
        self._growing = asyncio.Lock()
        self._grown = processes == 1

    @asynccontextmanager
    async def turn(self, size_bytes: int) -> AsyncIterator[None]:
        """Waits for the turn of a file of this size, and holds it. Raises Unavailable after a stop."""
        async with AsyncExitStack() as held:
            if size_bytes >= self._large_bytes:
                await held.enter_async_context(self._large)
                await self._grow_once()
            await held.enter_async_context(self._any)
            self._require_running()
            yield

    async def _grow_once(self) -> None:
        async with self._growing:
            self._require_running()
            if not self._grown:
                await self._grow()
                self._grown = True
                for _ in range(self._processes - 1):
                    self._any.release()

    def _require_running(self) -> None:
        if self._stop.is_set():
            raise Unavailable("the process is stopping")
