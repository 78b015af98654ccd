import numpy as np
import pytest

from services.embedder.domain.encoding import BadVector, Tokens, check_vectors, shortest_first
from services.embedder.domain.spaces import Space


@pytest.mark.parametrize(
    ("model", "dimensions", "expected"),
    [
        ("all-MiniLM-L6-v2", 384, "all_minilm_l6_v2_384"),
        ("sentence-transformers/all-MiniLM-L6-v2", 384, "all_minilm_l6_v2_384"),
        ("Qwen/Qwen3-Embedding-0.6B", 1024, "qwen3_embedding_0_6b_1024"),
        ("3-things", 8, "model_3_things_8"),
        ("日本", 8, "model_8"),
    ],
)
def test_a_space_is_named_after_model_and_dimensions(model: str, dimensions: int, expected: str) -> None:
    space = Space(model, dimensions)
    assert (space.id, space.table) == (expected, f"vectors_{expected}")


def test_long_model_names_are_cut_and_stay_distinct() -> None:
    first, second = (Space(f"{'model-with-a-long-name' * 4}-{n}", 1024).id for n in (1, 2))
    assert first != second
    assert len(first) == len(second) == 48
    assert first.endswith("_1024")


def test_slices_cover_every_text_once_from_short_to_long() -> None:
    tokens = [Tokens((0,) * n) for n in (5, 1, 4, 2, 3)]
    assert shortest_first(tokens, 2) == [[1, 3], [4, 2], [0]]
    assert shortest_first([], 2) == []


def test_a_slice_holds_no_more_tokens_than_allowed_unless_it_is_a_single_text() -> None:
    tokens = [Tokens((1,) * length) for length in (20, 2, 6, 7, 1, 5)]
    assert shortest_first(tokens, 3, 12) == [[4, 1], [5, 2], [3], [0]]


@pytest.mark.parametrize(
    "row",
    [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0], [1.0], [1.0, 0.0, 0.0]],
    ids=["zero", "nan", "infinite", "too short", "too long"],
)
def test_vectors_that_cannot_be_compared_are_refused(row: list[float]) -> None:
    with pytest.raises(BadVector):
        check_vectors(np.array([row], np.float32), dimensions=2)


def test_one_bad_vector_among_good_ones_is_found() -> None:
    good = np.eye(2, dtype=np.float32)
    check_vectors(good, dimensions=2)
    with pytest.raises(BadVector):
        check_vectors(np.vstack([good, np.zeros((1, 2), np.float32)]), dimensions=2)
