"""Figures are JSON lines {"metric": NAME, "value": NUMBER, ...} on stdout, all else goes to stderr."""

import json
import statistics
import sys
from collections.abc import Sequence
from typing import Final

import structlog

MAX_MOVE: Final = 0.1


def report(metric: str, value: float, **figures: object) -> None:
    print(json.dumps({"metric": metric, "value": round(value, 4), **figures}), flush=True)


def report_ratio(metric: str, ours: Sequence[float], baseline: Sequence[float], **figures: object) -> None:
    """Median of `ours` to `baseline`, round by round; both are rates, or both seconds.

    `steady` is false where the baseline moved by more than a tenth of its median: the machine did something else
    meanwhile, and the run is to be repeated.
    """
    ratios = [one / other for one, other in zip(ours, baseline, strict=True)]
    moved = (max(baseline) - min(baseline)) / statistics.median(baseline)
    if moved > MAX_MOVE:
        log(f"{metric}: the baseline moved by {moved:.0%} within this run, which therefore says little")
    report(
        metric,
        statistics.median(ratios),
        spread=[round(min(ratios), 3), round(max(ratios), 3)],
        baseline_moved=round(moved, 3),
        steady=moved <= MAX_MOVE,
        rounds=len(ratios),
        **figures,
    )


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def quiet_logs() -> None:
    """Of the parts that are measured: warnings only, and not on stdout."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
