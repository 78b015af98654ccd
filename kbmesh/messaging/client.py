"""What aiokafka's consumer has to be helped with from inside."""

import asyncio
from contextlib import suppress
from typing import Final

from aiokafka import AIOKafkaConsumer

EMPTY_FETCH_S: Final = 0.02


def pace(inner: AIOKafkaConsumer) -> None:
    """Lets a fetch that brings nothing last EMPTY_FETCH_S at least; to be called once it is started.

    Kafka holds a fetch until there is something, or half a second. A broker that says at once that there is
    nothing would be asked thousands of times a second.
    """
    fetcher = inner._fetcher
    fetch = fetcher._proc_fetch_request
    loop = asyncio.get_running_loop()

    async def paced(*arguments: object) -> bool:
        earliest_end = loop.time() + EMPTY_FETCH_S
        fetched: bool = await fetch(*arguments)
        if not fetched:
            # Swallowed as in the fetch itself: the client waits for what it has cancelled.
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(earliest_end - loop.time())
        return fetched

    fetcher._proc_fetch_request = paced


async def stop_hard(inner: AIOKafkaConsumer, *, timeout_s: float) -> None:
    """Ends what an interrupted `stop` leaves: its heartbeat would keep the partitions from everybody."""
    tasks: set[asyncio.Task[object] | None] = set()
    if (coordinator := inner._coordinator) is not None:
        tasks |= {coordinator._coordination_task, coordinator._heartbeat_task, coordinator._commit_refresh_task}
    if (fetcher := inner._fetcher) is not None:
        tasks |= {fetcher._fetch_task, *fetcher._pending_tasks}
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=timeout_s)
    await inner._client.close()
