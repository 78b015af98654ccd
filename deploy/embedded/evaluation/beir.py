"""Collections in BEIR's layout: a folder each with corpus.jsonl.gz, queries.jsonl.gz and qrels.tsv."""

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Collection:
    """`judgements` are grades from 1 up, by query and document; every query has some."""

    name: str
    texts: dict[str, str]
    queries: dict[str, str]
    judgements: dict[str, dict[str, int]]

    def part(self, queries: int, others: int) -> Self:
        """The first `queries`, the documents that are judged for them, and the first `others` besides."""
        kept = dict(islice(self.queries.items(), queries))
        judgements = {query: self.judgements[query] for query in kept}
        judged = {document for grades in judgements.values() for document in grades}
        rest = islice((document for document in self.texts if document not in judged), others)
        documents = judged.union(rest)
        texts = {document: text for document, text in self.texts.items() if document in documents}
        return replace(self, texts=texts, queries=kept, judgements=judgements)


def load_collection(folder: Path) -> Collection:
    """Without documents that have no text, and without queries that have no judgement.

    Raises:
        OSError, ValueError, KeyError: a file is missing, or not what it should be.
    """
    judgements: dict[str, dict[str, int]] = {}
    with (folder / "qrels.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if (grade := int(row["score"])) > 0:
                judgements.setdefault(row["query-id"], {})[row["corpus-id"]] = grade
    texts = {row["_id"]: _text(row) for row in _rows(folder / "corpus.jsonl.gz")}
    queries = {row["_id"]: str(row["text"]) for row in _rows(folder / "queries.jsonl.gz")}
    return Collection(
        name=folder.name,
        texts={document: text for document, text in texts.items() if text},
        queries={query: text for query, text in queries.items() if query in judgements},
        judgements={query: grades for query, grades in judgements.items() if query in queries},
    )


def _text(row: dict[str, Any]) -> str:
    return "\n\n".join(part for name in ("title", "text") if (part := row.get(name, "").strip()))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
