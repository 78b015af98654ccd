"""The queue from which a consumer takes its messages: nothing lost, order kept, nobody starved."""

from collections import deque
from collections.abc import Coroutine
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kbmesh.messaging.fair_queue import FairQueue

Item = tuple[int, int]  # its line, and its number in that line

STEPS = st.lists(
    st.one_of(st.integers(0, 5), st.sampled_from(["take", "hold", "release", "put back"])), max_size=80
)


def now(waiting: Coroutine[Any, Any, Item]) -> Item:
    """The result of what has not to wait."""
    try:
        waiting.send(None)
    except StopIteration as result:
        item: Item = result.value
        return item
    waiting.close()
    raise AssertionError("it waits")


@given(STEPS)
def test_every_item_comes_once_and_in_the_order_of_its_line(steps: list[int | str]) -> None:
    queue = FairQueue[Item](lambda item: item[0])
    waiting: dict[int, deque[Item]] = {line: deque() for line in range(6)}
    put = dict.fromkeys(waiting, 0)
    held: list[Item] = []

    def servable() -> bool:
        busy = {line for line, _ in held}
        return any(items for line, items in waiting.items() if line not in busy)

    def take(*, hold: bool) -> Item:
        item = now(queue.get(hold=hold))
        assert item == waiting[item[0]].popleft()
        return item

    for step in steps:
        if isinstance(step, int):
            item = (step, put[step])
            put[step] += 1
            waiting[step].append(item)
            queue.put(item)
        elif step == "release":
            if held:
                queue.release(held.pop(0))
        elif servable():
            item = take(hold=step == "hold")
            if step == "hold":
                held.append(item)
            elif step == "put back":
                queue.put_back(item)
                assert now(queue.get()) == item
    for item in held:
        queue.release(item)
    held.clear()
    while servable():
        take(hold=False)
    assert not any(waiting.values())


@given(begun=st.integers(0, 6), long=st.integers(1, 6), served=st.integers(0, 12))
def test_the_wait_is_bounded_by_the_number_of_lines_and_not_by_their_length(
    begun: int, long: int, served: int
) -> None:
    queue = FairQueue[Item](lambda item: item[0])
    for number in range(100):
        for line in range(long):
            queue.put((line, number))
    for _ in range(long * 2 + served):  # every long line has begun
        now(queue.get())
    for line in range(begun):
        queue.put((100 + line, 0))
    queue.put((999, 0))
    order = [now(queue.get()) for _ in range(2 * (begun + 1) + 2 * long)]
    assert order.index((999, 0)) < 2 * (begun + 1)
    assert {line for line, _ in order} >= set(range(long))
