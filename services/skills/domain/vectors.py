from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray


class Side(Enum):
    """Models trained for retrieval encode the two sides differently."""

    QUESTION = auto()
    CHUNK = auto()


@dataclass(frozen=True, slots=True)
class Space:
    """Vectors of one space can be compared with one another, and with no others."""

    id: str
    dimensions: int


@dataclass(frozen=True, slots=True)
class Embedded:
    """One finite vector of unit length for each text: shape (texts, dimensions)."""

    space: Space
    vectors: NDArray[np.float32]
