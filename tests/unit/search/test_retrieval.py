import math

import pytest

from services.search.domain.retrieval import (
    EXACT_UP_TO,
    QueryVector,
    Scan,
    Space,
    VectorLegSkipped,
    check_comparable,
    choose_scan,
)

SPACE = Space("mini_2", "vectors_mini_2", 2)


@pytest.mark.parametrize(
    ("visible", "of", "scan"),
    [
        (0, 0, Scan.EXACT),
        (EXACT_UP_TO, 10_000, Scan.EXACT),
        (EXACT_UP_TO + 1, 100_000, Scan.INDEX),
        (100_000, 100_000, Scan.INDEX),
        (20_000, 1_000_000, Scan.EXACT),
        (25_000, 1_000_000, Scan.INDEX),
    ],
)
def test_few_chunks_or_a_small_share_are_looked_through_and_many_sought_by_index(
    visible: int, of: int, scan: Scan
) -> None:
    assert choose_scan(visible, of) is scan


def test_a_vector_of_the_active_space_is_compared() -> None:
    check_comparable(QueryVector((0.6, 0.8), "mini_2"), SPACE)


@pytest.mark.parametrize(
    ("vector", "code"),
    [
        (QueryVector((0.6, 0.8), "other_2"), "space_mismatch"),
        (QueryVector((1.0,), "mini_2"), "space_mismatch"),
        (QueryVector((0.0, 0.0), "mini_2"), "bad_vector"),
        (QueryVector((math.nan, 1.0), "mini_2"), "bad_vector"),
        (QueryVector((math.inf, 1.0), "mini_2"), "bad_vector"),
    ],
)
def test_a_vector_that_cannot_be_compared_is_not(vector: QueryVector, code: str) -> None:
    with pytest.raises(VectorLegSkipped, match=code):
        check_comparable(vector, SPACE)
