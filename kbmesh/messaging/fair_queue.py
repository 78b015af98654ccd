import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")
_Lines = OrderedDict[Hashable, deque[T]]


class FairQueue(Generic[T]):
    """A line for each key, in order within a line. Lines take turns, those that have just begun every other time.

    So the first item of a line comes soon, however many long lines there are, and a long line goes on, however
    many others begin.
    """

    def __init__(self, key: Callable[[T], Hashable]) -> None:
        self._key = key
        self._begun: _Lines[T] = OrderedDict()
        self._others: _Lines[T] = OrderedDict()
        self._held: _Lines[T] = OrderedDict()
        self._begun_was_last = False
        self._filled = asyncio.Event()

    def put(self, item: T) -> None:
        key = self._key(item)
        for lines in (self._others, self._begun, self._held):
            if key in lines:
                lines[key].append(item)
                return
        self._begun[key] = deque([item])
        self._filled.set()

    async def get(self, *, hold: bool = False, first: bool = False) -> T:
        """The next item; waits for one. With `hold` its line waits, too, until `release`. With `first` it is the
        first of a line that has just begun."""
        while not (self._begun or (self._others and not first)):
            self._filled.clear()
            await self._filled.wait()
        self._begun_was_last = first or (bool(self._begun) and not (self._others and self._begun_was_last))
        key, line = (self._begun if self._begun_was_last else self._others).popitem(last=False)
        item = line.popleft()
        if hold:
            self._held[key] = line
        elif line:
            self._others[key] = line
        return item

    def release(self, item: T) -> None:
        """Lets the line go on that `item` was taken from with `hold`."""
        key = self._key(item)
        if line := self._held.pop(key):
            self._others[key] = line
            self._filled.set()

    def put_back(self, item: T) -> None:
        """Makes what was just taken, without `hold`, the next item again."""
        key = self._key(item)
        self._others.setdefault(key, deque()).appendleft(item)
        self._others.move_to_end(key, last=False)
        self._begun_was_last = True
        self._filled.set()

    def retain(self, wanted: Callable[[T], bool]) -> None:
        """Drops the items that are not `wanted`, which is asked once for each."""
        for lines in (self._begun, self._others, self._held):
            for key, line in list(lines.items()):
                lines[key] = deque(filter(wanted, line))
                if not lines[key] and lines is not self._held:
                    del lines[key]
