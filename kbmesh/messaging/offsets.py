from collections import deque


class OffsetTracker:
    """Which offset of one partition may be committed, when its messages finish in any order."""

    def __init__(self) -> None:
        self._open: deque[int] = deque()  # ascending, as the broker delivers
        self._finished: set[int] = set()
        self._abandoned = 0
        self._next: int | None = None
        self._committed: int | None = None

    @property
    def in_flight(self) -> int:
        """Messages delivered and neither finished nor abandoned."""
        return len(self._open) - len(self._finished) - self._abandoned

    def delivered(self, offset: int) -> None:
        self._open.append(offset)

    def finished(self, offset: int) -> None:
        self._finished.add(offset)
        while self._open and self._open[0] in self._finished:
            done = self._open.popleft()
            self._finished.discard(done)
            self._next = done + 1

    def abandon(self) -> None:
        """One message will not be worked on here. No commit ever passes it, whatever finishes behind it."""
        self._abandoned += 1

    def committable(self) -> int | None:
        """The next offset to read, as Kafka wants it; None when nothing is new since `committed`."""
        return self._next if self._next != self._committed else None

    def committed(self, offset: int) -> None:
        self._committed = offset
