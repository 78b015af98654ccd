from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from kbmesh.errors import KbmeshError

Vectors = NDArray[np.float32]
"""Shape (texts, dimensions)."""


class InputType(StrEnum):
    """Models trained for retrieval encode the two sides differently."""

    QUERY = "query"
    DOCUMENT = "document"


class Lane(StrEnum):
    """Who goes first where texts wait for one model."""

    CALLER = "caller"
    """Somebody waits for the answer."""
    FRESH = "fresh"
    """What was uploaded just now, for the active space."""
    REFILL = "refill"
    """What other spaces still lack."""


class BadVector(KbmeshError):
    """The model gave a vector that must not be stored or compared."""

    default_code = "bad_vector"


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the model reads of one text, its special tokens included."""

    ids: tuple[int, ...]
    truncated: bool = False

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """One row, count and flag for each text, in the order of the texts."""

    vectors: Vectors
    token_counts: tuple[int, ...]
    truncated: tuple[bool, ...]


def shortest_first(tokens: Sequence[Tokens], size: int, max_tokens: int | None = None) -> list[list[int]]:
    """Indices of `tokens` in slices of neighbours in length, so that padding is small.

    Args:
        size: texts in one slice, at most.
        max_tokens: of one slice with its padding (texts times the longest), at most; a longer text is a slice of
            its own. None: any number.
    """
    slices: list[list[int]] = []
    for index in sorted(range(len(tokens)), key=lambda index: len(tokens[index])):
        # The newest is the longest so far: all of its slice are padded to it.
        texts = len(slices[-1]) + 1 if slices else size + 1
        if texts > size or (max_tokens is not None and texts * len(tokens[index]) > max_tokens):
            slices.append([])
        slices[-1].append(index)
    return slices


def check_vectors(vectors: Vectors, *, dimensions: int) -> None:
    """Raises:
    BadVector: another dimension, a value that is not finite, or a vector of length zero.
    """
    if vectors.ndim != 2 or vectors.shape[1] != dimensions:
        raise BadVector(f"expected {dimensions} dimensions, got an array of shape {vectors.shape}")
    norms = np.linalg.norm(vectors, axis=1)
    if not np.isfinite(norms).all():
        raise BadVector("a vector holds a value that is not finite")
    if not norms.all():
        raise BadVector("a vector has length zero")


def cut(vectors: Vectors, dimensions: int) -> Vectors:
    """The first `dimensions` values of each vector, at unit length again (Matryoshka representations, Kusupati et
    al. 2022). Vectors of that size come back as they are."""
    if vectors.ndim != 2 or vectors.shape[1] <= dimensions:
        return vectors
    return unit(vectors[:, :dimensions])


def unit(vectors: NDArray[np.floating]) -> Vectors:
    """The same directions at length 1; a vector without direction is left as it is."""
    with np.errstate(invalid="ignore", over="ignore"):  # what comes of that is refused
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        scaled: Vectors = np.divide(vectors, norms, out=vectors.copy(), where=norms > 0).astype(np.float32)
    return scaled
