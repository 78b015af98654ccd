"""Where the answer to a question is looked for, by what the question is about."""

from dataclasses import dataclass, replace
from typing import Final

from kbmesh.errors import InvalidArgument

RELAXED_BY: Final = 0.10
LOWEST_FLOOR: Final = 0.25


@dataclass(frozen=True, slots=True)
class Look:
    """Of a scope of kbmesh/provenance.py, `top_k` passages at most, with `min_score` as ContextQuery has it."""

    scope: str
    top_k: int
    min_score: float

    def relaxed(self) -> "Look":
        return replace(self, min_score=max(LOWEST_FLOOR, round(self.min_score - RELAXED_BY, 2)))


PLANS: Final[dict[str, tuple[Look, ...]]] = {
    "business": (
        Look("usecases", 10, 0.40),
        Look("estate", 8, 0.35),
        Look("benchmarks", 6, 0.35),
        Look("fabric", 8, 0.35),
        Look("skills", 4, 0.40),
    ),
    "technical": (Look("estate", 15, 0.40), Look("insights", 8, 0.40), Look("skills", 6, 0.40)),
    "dashboard": (
        Look("insights", 10, 0.40),
        Look("usecases", 8, 0.40),
        Look("fabric", 8, 0.35),
        Look("skills", 4, 0.40),
    ),
    "navigation": (
        Look("estate", 10, 0.35),
        Look("usecases", 8, 0.35),
        Look("documents", 5, 0.35),
        Look("fabric", 6, 0.35),
    ),
    "exploration": (
        Look("estate", 10, 0.35),
        Look("usecases", 8, 0.35),
        Look("documents", 5, 0.35),
        Look("fabric", 6, 0.35),
        Look("skills", 4, 0.40),
    ),
    "strategic": (
        Look("usecases", 15, 0.30),
        Look("estate", 10, 0.30),
        Look("benchmarks", 8, 0.30),
        Look("documents", 5, 0.30),
        Look("skills", 4, 0.40),
    ),
}
"""By intent, in the order in which the scopes stand in the text."""


def plan_of(intent: str) -> tuple[Look, ...]:
    """
    Raises:
        InvalidArgument: unknown_intent.
    """
    try:
        return PLANS[intent]
    except KeyError:
        raise InvalidArgument(
            f"the intent is one of {', '.join(PLANS)}, not {intent[:64]!r}", code="unknown_intent"
        ) from None
