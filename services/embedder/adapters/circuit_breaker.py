import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kbmesh.errors import Unavailable


class CircuitBreaker:
    """Spares a dependency that fails, and those who would wait for it.

    After `failures` in a row calls are refused for `pause_s`; then one goes through, and its outcome decides
    (M. Nygard, Release It!, "Circuit Breaker").
    """

    def __init__(self, *, failures: int, pause_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._failures = failures
        self._pause_s = pause_s
        self._clock = clock
        self._in_a_row = 0
        self._open_until = clock()
        self._probing = False

    @contextmanager
    def call(self) -> Iterator[None]:
        """Around one call. Only Unavailable is a failure: with any other error the dependency has answered.

        Raises:
            Unavailable: (`circuit_open`) the call is not to be made now.
        """
        probing = self._in_a_row >= self._failures
        if probing and (self._probing or self._clock() < self._open_until):
            raise Unavailable("it failed several times in a row and is left alone", code="circuit_open")
        self._probing = self._probing or probing
        try:
            yield
        except Unavailable:
            self._in_a_row += 1
            self._open_until = max(self._open_until, self._clock() + self._pause_s)
            raise
        except Exception:
            self._in_a_row = 0
            raise
        else:
            self._in_a_row = 0
        finally:
            if probing:
                self._probing = False

    def open_for(self, pause_s: float) -> None:
        """Refuses calls from now on, as after failures in a row: the dependency asked for it."""
        self._in_a_row = max(self._in_a_row, self._failures)
        self._open_until = max(self._open_until, self._clock() + pause_s)
