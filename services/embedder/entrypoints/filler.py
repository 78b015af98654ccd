import asyncio
import time
from typing import Final

import structlog

from kbmesh.errors import KbmeshError
from services.embedder import handlers
from services.embedder.domain.spaces import Space
from services.embedder.ports import Backlog, Models, SpaceDirectory, SpaceStore

log = structlog.get_logger(__name__)

WORKERS: Final = 2
"""One fetches or writes while the other's texts are encoded."""
IDLE_S: Final = 0.5
BACKOFF_S: Final = 10.0


async def fill_spaces(
    spaces: SpaceDirectory, *, models: Models, store: SpaceStore, backlog: Backlog, stop: asyncio.Event
) -> None:
    """Keeps every space but the active one up to date, as far as its model is configured, until `stop`."""
    resting: dict[Space, float] = {}
    checked: set[Space] = set()

    async def step(space: Space) -> bool:
        if space.model not in models or resting.get(space, 0) > time.monotonic():
            return False
        try:
            if space not in checked:
                await handlers.check_model(space, store=store, models=models)
                checked.add(space)
            return await handlers.fill(space, models=models, backlog=backlog)
        except Exception as error:
            code = error.code if isinstance(error, KbmeshError) else type(error).__name__
            log.warning("space_not_filled", space=space.id, error=code, exc_info=True)
            resting[space] = time.monotonic() + BACKOFF_S
            return False

    async def work() -> None:
        while True:
            if not any([await step(space) for space in spaces.inactive()]):
                await asyncio.sleep(IDLE_S)

    async with asyncio.TaskGroup() as tasks:
        workers = [tasks.create_task(work()) for _ in range(WORKERS)]
        await stop.wait()
        # What they had taken they give back; encoding it could take longer than there is time.
        for worker in workers:
            worker.cancel()
