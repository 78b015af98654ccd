import asyncio
from contextlib import suppress

import pytest

from kbmesh.errors import Unavailable
from services.ingest.handlers.turns import Turns

SMALL, LARGE = 99, 100


class Office:
    """Documents that hold their turn until they are told to leave it."""

    def __init__(self, processes: int) -> None:
        self.stop = asyncio.Event()
        self.grown = asyncio.Event()
        self.grown.set()
        self.growths = 0
        self.inside: list[str] = []
        self._leave: dict[str, asyncio.Event] = {}
        self.turns = Turns(processes, large_bytes=LARGE, grow=self._grow, stop=self.stop)

    async def _grow(self) -> None:
        self.growths += 1
        await self.grown.wait()

    async def come(self, name: str, size: int) -> "asyncio.Task[None]":
        leave = self._leave[name] = asyncio.Event()

        async def visit() -> None:
            async with self.turns.turn(size):
                self.inside.append(name)
                try:
                    await leave.wait()
                finally:
                    self.inside.remove(name)

        task = asyncio.create_task(visit())
        await self._settle()
        return task

    async def leave(self, name: str) -> None:
        self._leave[name].set()
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


async def test_large_files_leave_one_process_to_small_ones() -> None:
    office = Office(3)
    for name in ("large 1", "large 2", "large 3", "large 4"):
        await office.come(name, LARGE)
    await office.come("small", SMALL)
    assert office.inside == ["large 1", "large 2", "small"]
    await office.leave("small")
    assert office.inside == ["large 1", "large 2"]
    await office.leave("large 1")
    assert office.inside == ["large 2", "large 3"]


async def test_small_files_may_take_all_processes_and_turns_come_in_order() -> None:
    office = Office(2)
    await office.come("large", LARGE)
    await office.leave("large")
    for name in ("a", "b", "c", "d"):
        await office.come(name, SMALL)
    assert office.inside == ["a", "b"]
    await office.leave("b")
    assert office.inside == ["a", "c"]


async def test_one_process_takes_everything_in_turn() -> None:
    office = Office(1)
    for name, size in (("large", LARGE), ("small", SMALL), ("other", LARGE)):
        await office.come(name, size)
    assert office.inside == ["large"]
    await office.leave("large")
    assert office.inside == ["small"]
    await office.leave("small")
    assert office.inside == ["other"]
    assert office.growths == 0


async def test_the_first_large_file_waits_for_the_other_processes_and_small_ones_do_not() -> None:
    office = Office(2)
    office.grown.clear()
    await office.come("large", LARGE)
    await office.come("small", SMALL)
    await office.come("next", SMALL)
    assert office.inside == ["small"]
    await office.leave("small")
    assert office.inside == ["next"]
    office.grown.set()
    await office.leave("next")
    assert office.inside == ["large"]
    await office.come("small", SMALL)
    await office.leave("large")
    await office.come("large", LARGE)
    assert office.inside == ["small", "large"]
    assert office.growths == 1


async def test_a_turn_given_up_or_failed_goes_to_the_next() -> None:
    office = Office(2)
    first = await office.come("first", LARGE)
    given_up = await office.come("given up", LARGE)
    await office.come("last", LARGE)
    for task in (given_up, first):
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await office.come("small", SMALL)
    assert office.inside == ["last", "small"]


async def test_processes_that_do_not_start_are_tried_again_by_the_next_large_file() -> None:
    office = Office(2)
    failing = True

    async def grow() -> None:
        if failing:
            raise Unavailable("no memory")

    turns = Turns(2, large_bytes=LARGE, grow=grow, stop=office.stop)
    with pytest.raises(Unavailable):
        async with turns.turn(LARGE):
            pass
    failing = False
    async with turns.turn(LARGE), turns.turn(SMALL):
        pass


async def test_after_a_stop_nobody_who_waits_gets_a_turn() -> None:
    office = Office(2)
    await office.come("large", LARGE)
    await office.come("small", SMALL)
    waiting = [await office.come("waits", SMALL), await office.come("also", LARGE)]
    office.stop.set()
    await office.leave("small")
    await office.leave("large")
    for task in waiting:
        with pytest.raises(Unavailable):
            await task
    assert office.inside == []
