from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kbmesh.errors import TRANSIENT
from services.embedder.domain.encoding import Encoded

TRIES_ALONE: Final = 2


@dataclass(slots=True)
class Bisected:
    """Indices of texts: those of `good` in order, their rows one after the other in `parts`."""

    good: list[int] = field(default_factory=list)
    parts: list[Encoded] = field(default_factory=list)
    bad: dict[int, Exception] = field(default_factory=dict)


async def encode_by_bisection(
    texts: Sequence[str], encode: Callable[[Sequence[str]], Awaitable[Encoded]]
) -> Bisected:
    """Encodes all texts that can be; what fails is halved until the bad ones stand alone, and fail again there.

    Takes 1 + b * (2 * ceil(log2 n) + 1) calls of `encode` at most, for b bad ones among n texts.

    Raises:
        TRANSIENT: as `encode` raised it: no text has a part in that.
    """
    found = Bisected()
    waiting = [(range(len(texts)), TRIES_ALONE)] if texts else []
    while waiting:
        indices, tries = waiting.pop()
        try:
            encoded = await encode([texts[index] for index in indices])
        except TRANSIENT:
            raise
        except Exception as error:
            middle = len(indices) // 2
            if middle:
                waiting += [(indices[middle:], TRIES_ALONE), (indices[:middle], TRIES_ALONE)]
            elif tries > 1:
                waiting.append((indices, tries - 1))
            else:
                found.bad[indices[0]] = error
        else:
            found.good += indices
            found.parts.append(encoded)
    return found
