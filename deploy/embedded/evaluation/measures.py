"""Measures of ranked retrieval, computed by ir-measures with trec_eval."""

from collections.abc import Mapping, Sequence
from typing import Final

import ir_measures
from ir_measures import RR, R, nDCG

DEPTH: Final = 50
"""Documents of an answer that are looked at: KbSearch gives no more."""

MEASURES: Final = {"ndcg10": nDCG @ 10, "recall10": R @ 10, f"recall{DEPTH}": R @ DEPTH, "mrr": RR @ DEPTH}

Run = Mapping[str, Sequence[str]]
"""Documents by query, best first."""


def measure(run: Run, judgements: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """Means over all queries that have judgements; one that found nothing counts as 0."""
    # Scores that fall with the rank: trec_eval orders by them, and equal ones by the name of the document.
    scores = {
        query: {document: -float(rank) for rank, document in enumerate(documents[:DEPTH])}
        for query, documents in run.items()
    }
    qrels = {query: dict(grades) for query, grades in judgements.items()}
    found = ir_measures.calc_aggregate(list(MEASURES.values()), qrels, scores)
    return {name: float(found[wanted]) for name, wanted in MEASURES.items()}
