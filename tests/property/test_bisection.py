"""Bad texts among good ones are found, all of them and nothing else, in few calls."""

from collections.abc import Sequence
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbmesh.errors import Unavailable
from services.embedder.domain.bisection import TRIES_ALONE, encode_by_bisection
from services.embedder.domain.encoding import Encoded


class Picky:
    """Encodes a text as its number; fails on the bad ones, as often as is left in `failures`."""

    def __init__(self, failures: dict[int, int]) -> None:
        self.failures = failures
        self.calls: list[list[int]] = []

    async def encode(self, texts: Sequence[str]) -> Encoded:
        numbers = [int(text) for text in texts]
        self.calls.append(numbers)
        for number in numbers:
            if self.failures.get(number, 0):
                if len(numbers) == 1:
                    self.failures[number] -= 1
                raise ValueError(number)
        return Encoded(np.array([[n] for n in numbers], np.float32), (1,) * len(texts), (False,) * len(texts))


def texts(count: int) -> list[str]:
    return [str(number) for number in range(count)]


@given(st.integers(0, 64).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, max(0, n - 1))))))
@settings(max_examples=60)
async def test_whatever_is_bad_is_found_exactly_and_the_rest_encoded(drawn: tuple[int, set[int]]) -> None:
    count, bad = drawn
    bad &= set(range(count))
    picky = Picky(dict.fromkeys(bad, TRIES_ALONE))
    found = await encode_by_bisection(texts(count), picky.encode)
    assert {number: error.args for number, error in found.bad.items()} == {number: (number,) for number in bad}
    assert found.good == sorted(set(range(count)) - bad)
    assert [row for part in found.parts for [row] in part.vectors.tolist()] == found.good
    assert len(picky.calls) <= (1 + len(bad) * (2 * ceil(log2(count)) + 1) if count else 0)


async def test_a_text_that_fails_once_alone_is_not_bad() -> None:
    found = await encode_by_bisection(texts(8), Picky({5: TRIES_ALONE - 1}).encode)
    assert (found.good, found.bad) == (list(range(8)), {})


@pytest.mark.parametrize("outage", [Unavailable("down"), ConnectionResetError(), TimeoutError()], ids=repr)
async def test_an_outage_is_nobodys_fault(outage: Exception) -> None:
    calls = 0

    async def encode(texts: Sequence[str]) -> Encoded:
        nonlocal calls
        calls += 1
        raise outage if calls == 3 else ValueError

    with pytest.raises(type(outage)):
        await encode_by_bisection(texts(8), encode)
    assert calls == 3
