import math
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


def shortest_first(tokens: list[Tokens], size: int, max_tokens: float = math.inf) -> list[list[int]]:
    """Indices of `tokens` in slices of at most `size`, neighbours in length together so that padding is small.

    A slice of more than one text holds at most `max_tokens`, padding included.
    """
    slices: list[list[int]] = []
    for index in sorted(range(len(tokens)), key=lambda index: len(tokens[index])):
        count = len(slices[-1]) + 1 if slices else 1
        if 1 < count <= size and count * len(tokens[index]) <= max_tokens:
            slices[-1].append(index)
        else:
            slices.append([index])
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
    al. 2022). Vectors of that size already come back as they are; a vector without direction is left as it is."""
    if vectors.ndim != 2 or vectors.shape[1] <= dimensions:
        return vectors
    short = vectors[:, :dimensions]
    norms = np.linalg.norm(short, axis=1, keepdims=True)
    unit: Vectors = np.divide(short, norms, out=short.copy(), where=norms > 0)
    return unit
