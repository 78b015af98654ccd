import asyncio
from collections import deque

import pytest

from kbmesh.messaging.fair_queue import FairQueue


def queue_of(*items: str) -> FairQueue[str]:
    """Items are keyed by their first letter."""
    queue = FairQueue[str](lambda item: item[0])
    for item in items:
        queue.put(item)
    return queue


async def taken(queue: FairQueue[str], count: int) -> list[str]:
    return [await asyncio.wait_for(queue.get(), 1) for _ in range(count)]


async def test_lines_take_turns_and_keep_their_order() -> None:
    queue = queue_of("a1", "a2", "a3", "b1", "b2", "c1")
    assert await taken(queue, 6) == ["a1", "a2", "b1", "a3", "c1", "b2"]


async def test_a_line_that_begins_does_not_wait_for_a_round_of_the_long_ones() -> None:
    queue = queue_of(*(f"{line}{n}" for n in range(9) for line in "abcdef"))
    await taken(queue, 20)
    queue.put("x1")
    assert "x1" in await taken(queue, 2)


async def test_a_long_line_goes_on_however_many_begin() -> None:
    queue = queue_of("a1", "a2", "a3")
    await taken(queue, 1)
    for line in "bcdefg":
        queue.put(f"{line}1")
    assert await taken(queue, 4) == ["a2", "b1", "a3", "c1"]


async def test_a_line_that_was_served_and_comes_again_begins_anew() -> None:
    queue = queue_of("a1")
    assert await taken(queue, 1) == ["a1"]
    queue.put("a2")
    assert await taken(queue, 1) == ["a2"]


async def test_who_wants_first_items_alone_waits_for_a_line_to_begin() -> None:
    queue = queue_of("a1", "a2", "b1")
    assert await queue.get(first=True) == "a1"
    assert await queue.get(first=True) == "b1"
    waiting = asyncio.ensure_future(queue.get(first=True))
    await asyncio.sleep(0)
    queue.put("a3")
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.put("c1")
    assert await asyncio.wait_for(waiting, 1) == "c1"
    assert await taken(queue, 2) == ["a2", "a3"]


async def test_a_held_line_waits_until_it_is_released_and_the_others_do_not() -> None:
    queue = queue_of("a1", "a2", "b1")
    assert await queue.get(hold=True) == "a1"
    queue.put("a3")
    assert await queue.get(hold=True) == "b1"
    queue.release("b1")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 0.02)
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.release("a1")
    assert await asyncio.wait_for(waiting, 1) == "a2"
    assert await taken(queue, 1) == ["a3"]


async def test_what_is_put_back_comes_next_and_before_the_rest_of_its_line() -> None:
    queue = queue_of("a1", "a2", "a3", "b1")
    assert await taken(queue, 2) == ["a1", "a2"]
    queue.put("c1")
    queue.put_back("a2")
    order = await taken(queue, 4)
    assert order[0] == "a2"
    assert set(order[1:]) == {"a3", "b1", "c1"}


async def test_what_is_put_back_alone_comes_next() -> None:
    queue = queue_of("a1", "a2")
    queue.put_back((await taken(queue, 1))[0])
    assert await taken(queue, 2) == ["a1", "a2"]


async def test_a_caller_waits_for_the_next_item() -> None:
    queue = queue_of()
    waiting = [asyncio.ensure_future(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.put("a1")
    queue.put("a2")
    assert await asyncio.wait_for(asyncio.gather(*waiting), 1) == ["a1", "a2"]


async def test_a_caller_that_gives_up_takes_nothing_along() -> None:
    queue = queue_of()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 0.01)
    queue.put("a1")
    assert await taken(queue, 1) == ["a1"]


async def test_what_is_no_longer_wanted_is_dropped_from_every_line() -> None:
    queue = queue_of("a1", "a2", "b1", "b2", "c2")
    await queue.get(hold=True)
    await taken(queue, 1)
    asked = deque[str]()

    def wanted(item: str) -> bool:
        asked.append(item)
        return item.endswith("2")

    queue.put("d1")
    queue.retain(wanted)
    assert sorted(asked) == ["a2", "b2", "c2", "d1"]
    queue.release("a1")
    assert sorted(await taken(queue, 3)) == ["a2", "b2", "c2"]
