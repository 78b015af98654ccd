"""How texts are put together into calls of the model."""

from hypothesis import given, settings
from hypothesis import strategies as st

from services.embedder.domain.encoding import Tokens, shortest_first


@settings(max_examples=50)
@given(
    lengths=st.lists(st.integers(0, 40), max_size=30),
    size=st.integers(1, 8),
    max_tokens=st.none() | st.integers(1, 200),
)
def test_every_text_is_in_one_slice_of_neighbours_within_the_limits(
    lengths: list[int], size: int, max_tokens: int | None
) -> None:
    slices = shortest_first([Tokens((0,) * length) for length in lengths], size, max_tokens)
    order = [index for indices in slices for index in indices]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[index] for index in order] == sorted(lengths)
    for indices in slices:
        padded = len(indices) * max(lengths[index] for index in indices)
        assert 1 <= len(indices) <= size
        assert max_tokens is None or padded <= max_tokens or len(indices) == 1
