"""The account of an assembled context."""

from dataclasses import dataclass
from enum import IntEnum

from services.search.domain.assembly import Strategy
from services.search.domain.packing import Packed


class StrategyStatus(IntEnum):
    OK = 1
    DEGRADED = 2
    FAILED = 3
    NOT_CONFIGURED = 4


@dataclass(frozen=True, slots=True)
class StrategyReport:
    """`reason` begins with a code; empty if the status is OK."""

    strategy: Strategy
    status: StrategyStatus
    reason: str
    milliseconds: int


@dataclass(frozen=True, slots=True)
class ScopeReport:
    """The floor that was used, how many passages came, and how many candidates did not, for either limit."""

    scope: str
    top_k: int
    min_score: float
    found: int
    below_floor: int
    beyond_top_k: int


@dataclass(frozen=True, slots=True)
class Assembly:
    """`relaxed`: nothing had cleared the floors of the plan. `max_chars` in code points."""

    packed: Packed
    strategies: tuple[StrategyReport, ...]
    scopes: tuple[ScopeReport, ...]
    relaxed: bool
    max_chars: int

    @property
    def degraded(self) -> bool:
        return any(report.status in (StrategyStatus.DEGRADED, StrategyStatus.FAILED) for report in self.strategies)

    @property
    def characters(self) -> int:
        return len(self.packed.overlay) + len(self.packed.text)

    def characters_of(self, strategy: Strategy) -> int:
        """Of what it brought, without headings."""
        overlay = len(self.packed.overlay) if strategy is Strategy.SKILLS else 0
        own = (entry for entry in self.packed.entries if entry.item.section.strategy is strategy)
        return overlay + sum(entry.characters or 0 for entry in own)
