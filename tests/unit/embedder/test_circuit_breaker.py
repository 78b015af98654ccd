from dataclasses import dataclass

import pytest

from kbmesh.errors import InvalidArgument, Unavailable
from services.embedder.adapters.circuit_breaker import CircuitBreaker


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker(failures=3, pause_s=10, clock=clock)


def call(breaker: CircuitBreaker, error: Exception | None = None) -> str:
    """What came of a call that ends with `error`: the code of what was raised, or nothing."""
    try:
        with breaker.call():
            if error is not None:
                raise error
    except (Unavailable, InvalidArgument) as raised:
        return raised.code
    return ""


def fail(breaker: CircuitBreaker, times: int) -> list[str]:
    return [call(breaker, Unavailable("down", code="down")) for _ in range(times)]


def test_after_failures_in_a_row_calls_are_refused(breaker: CircuitBreaker) -> None:
    assert fail(breaker, 4) == ["down", "down", "down", "circuit_open"]


def test_a_success_or_a_refusal_of_the_input_begins_the_count_anew(breaker: CircuitBreaker) -> None:
    for answer in (None, InvalidArgument("no", code="refused")):
        assert fail(breaker, 2) == ["down", "down"]
        call(breaker, answer)
    assert fail(breaker, 3) == ["down", "down", "down"]


def test_after_the_pause_one_call_goes_through_at_a_time(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 10
    with breaker.call():
        assert call(breaker) == "circuit_open"
    assert call(breaker) == ""


def test_a_probe_that_fails_begins_another_pause(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 10
    assert fail(breaker, 1) == ["down"]
    clock.now += 9
    assert call(breaker) == "circuit_open"
    clock.now += 1
    assert call(breaker) == ""


def test_a_probe_that_is_called_off_makes_room_for_the_next(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 10
    with pytest.raises(KeyboardInterrupt), breaker.call():
        raise KeyboardInterrupt
    assert call(breaker) == ""


def test_a_pause_that_was_asked_for_is_kept(breaker: CircuitBreaker, clock: Clock) -> None:
    breaker.open_for(60)
    clock.now += 59
    assert call(breaker) == "circuit_open"
    clock.now += 1
    assert call(breaker) == ""
