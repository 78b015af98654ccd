"""What search is compared with, on the same texts as they are: neither cut into chunks nor with headers."""

from collections.abc import Mapping, Sequence
from typing import Final

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray

from deploy.embedded.evaluation.measures import DEPTH, Run

K1: Final = 0.9
B: Final = 0.4
"""Of BM25, as Anserini sets them for collections of passages."""
RRF_K: Final = 60
"""Cormack, Clarke and Büttcher 2009."""

Vectors = NDArray[np.float32]


def by_bm25(texts: Mapping[str, str], queries: Mapping[str, str]) -> Run:
    stemmer = Stemmer.Stemmer("english")
    index = bm25s.BM25(k1=K1, b=B)
    index.index(bm25s.tokenize(list(texts.values()), stemmer=stemmer, show_progress=False), show_progress=False)
    asked = bm25s.tokenize(list(queries.values()), stemmer=stemmer, return_ids=False, show_progress=False)
    found, scores = index.retrieve(
        asked, corpus=list(texts), k=min(DEPTH, len(texts)), show_progress=False, backend_selection="numpy"
    )
    return {
        query: [str(document) for document, score in zip(row, row_scores, strict=True) if score > 0]
        for query, row, row_scores in zip(queries, found, scores, strict=True)
    }


def by_cosine(texts: Sequence[str], vectors: Vectors, queries: Sequence[str], query_vectors: Vectors) -> Run:
    """Every text is compared with every query. Vectors have unit length, shape (texts, dimensions)."""
    nearest = np.argsort(-(query_vectors @ vectors.T), axis=1, kind="stable")[:, :DEPTH]
    return {query: [texts[place] for place in row] for query, row in zip(queries, nearest, strict=True)}


def by_rrf(*runs: Run) -> Run:
    """Reciprocal rank fusion."""
    fused: dict[str, list[str]] = {}
    for query in runs[0]:
        scores: dict[str, float] = {}
        for run in runs:
            for rank, document in enumerate(run[query], start=1):
                scores[document] = scores.get(document, 0) + 1 / (RRF_K + rank)
        fused[query] = sorted(scores, key=lambda document: (-scores[document], document))[:DEPTH]
    return fused
