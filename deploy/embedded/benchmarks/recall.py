"""How many of the ten best of each leg are found by the scan that the planner chooses, against an exact one.

By callers who see one knowledge base, ten, a thousand or all of five thousand, and by filters of who sees all.
"""

import statistics
import time
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from deploy.embedded.benchmarks.corpus import SEEN, Corpus, caller
from deploy.embedded.benchmarks.report import report
from kbmesh.provenance import Category
from services.search.adapters.postgres import PostgresPassages
from services.search.domain.filters import Filters, Range
from services.search.domain.ranking import Candidate
from services.search.domain.retrieval import QueryVector, Scan, Space, Visibility
from services.search.handlers.legs import plan_scan

AT: Final = 10
TIE: Final = 1e-6

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Selection:
    """What a caller sees of the corpus, and its name in the figures."""

    name: str
    visible: Visibility


def selections() -> Iterator[Selection]:
    for seen in SEEN:
        yield Selection(f"bases_{seen}", visibility(seen))
    for name, filters in {
        "category_1%": Filters(category=Category.STRATEGY),
        "category_25%": Filters(category=Category.DATA_DICTIONARY),
        "category_60%": Filters(category=Category.OTHER),
        "metadata_0.5%": Filters(metadata={"region": "r7"}),
        "metadata_15%": Filters(ranges=(Range("year", 2024, None),)),
        "both_4%": Filters(category=Category.DATA_DICTIONARY, ranges=(Range("year", 2024, None),)),
    }.items():
        yield Selection(name, visibility(SEEN[-1], filters))


def visibility(seen: int, filters: Filters | None = None) -> Visibility:
    principal = caller(seen)
    return Visibility(principal.sub, principal.teams, filters=filters)


async def measure_recall(store: PostgresPassages, space: Space, corpus: Corpus, questions: int) -> None:
    asked = list(zip(*corpus.questions(questions), strict=True))
    for selection in selections():
        visible = selection.visible
        scan = await plan_scan(visible, store)
        recalls: dict[str, list[float]] = {"vector": [], "keyword": []}
        seconds: dict[tuple[str, Scan], list[float]] = {}
        for text, values in asked:
            vector = QueryVector(tuple(values.tolist()), space.id)
            for leg in recalls:
                found = {}
                for one in dict.fromkeys((Scan.EXACT, scan)):
                    search = (
                        store.by_vector(vector, space, visible, one)
                        if leg == "vector"
                        else store.by_keywords(text, visible, one)
                    )
                    took, candidates = await timed(search)
                    found[one] = candidates
                    seconds.setdefault((leg, one), []).append(took)
                recalls[leg].append(recall(found[scan], found[Scan.EXACT]))
        for leg, values in recalls.items():
            report(
                f"recall_at_{AT}_{leg}",
                statistics.mean(values),
                seen=selection.name,
                scan=scan.value,
                chunks=corpus.chunks,
                worst=round(min(values), 2),
                questions=questions,
                leg_p50_ms=ms(seconds[leg, scan]),
                exact_p50_ms=ms(seconds[leg, Scan.EXACT]),
            )


def recall(found: Sequence[Candidate], exact: Sequence[Candidate]) -> float:
    """Of the first ten of `exact`. One whose similarity is that of the tenth is as good as it."""
    if not exact:
        return 1.0
    best = sorted(exact, key=lambda one: -one.similarity)[:AT]
    least = best[-1].similarity
    return min(1.0, sum(one.similarity >= least - TIE for one in found) / len(best))


def ms(seconds: Sequence[float]) -> float:
    return round(statistics.median(seconds) * 1000, 1)


async def timed(work: Awaitable[T]) -> tuple[float, T]:
    started = time.perf_counter()
    result = await work
    return time.perf_counter() - started, result
