"""Many chunks that were never uploaded: texts and vectors by topic, the same in every run, written straight into
the tables of a migrated database.

Words follow Zipf's law, as those of prose do; a topic has words of its own, rare elsewhere. A vector lies near the
centre of its topic, leans to another one, and varies in few directions, as those of texts do: vectors that are
random in all dimensions have no near neighbours, and say nothing about recall. Half of a knowledge base is about
one topic.
"""

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final
from uuid import UUID, uuid5

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector

from deploy.embedded.benchmarks.prose import sentences
from kbmesh.auth import Principal
from kbmesh.postgres import Pool, connection
from kbmesh.provenance import DOCUMENT_CHUNK, Tier

Vectors = NDArray[np.float32]
Numbers = NDArray[np.int64]

SEEN: Final = (1, 10, 1_000, 5_000)
"""Knowledge bases that callers see, of the last number, which is all."""
CATEGORIES: Final = {
    "strategy": 0.01,
    "architecture": 0.04,
    "governance_policy": 0.1,
    "data_dictionary": 0.25,
    "other": 0.6,
}
"""And the share of documents that they have."""
REGIONS: Final = 200
YEARS: Final = range(2007, 2027)
CHUNKS_OF_A_DOCUMENT: Final = 10
TOPICS: Final = 300
FIELDS: Final = 20
VOCABULARY: Final = 40_000
TOPIC_WORDS: Final = 400
OWN_WORDS: Final = 0.35
"""Share of the words of a chunk that are of its topic."""
LENGTHS: Final = (60, 330)  # words
CONSONANTS: Final = "bdfgklmnprstvz"
VOWELS: Final = "aeiou"
DIRECTIONS: Final = 24
PORTION: Final = 10_000
LOAD_TIMEOUT_S: Final = 3_600
BUILD_TIMEOUT_S: Final = 4 * 3_600
_NAMESPACE: Final = UUID("6b626d65-7368-4000-8000-000000000000")


def team(number: int) -> UUID:
    return uuid5(_NAMESPACE, f"team {number}")


def caller(seen: int) -> Principal:
    """Of teams that have `seen` knowledge bases together."""
    return Principal(uuid5(_NAMESPACE, "caller"), frozenset(team(number) for number in SEEN if number <= seen))


@dataclass(frozen=True)
class Corpus:
    """`chunks` of them, with vectors of so many `dimensions`."""

    chunks: int
    dimensions: int

    @cached_property
    def centres(self) -> Vectors:
        """Of topics, by field: those of a field are nearer to one another, and none are far from all others."""
        dice = np.random.default_rng(5)
        fields = dice.normal(size=(FIELDS, self.dimensions))[dice.integers(FIELDS, size=TOPICS)]
        own = dice.normal(size=(TOPICS, self.dimensions))
        return unit(dice.normal(size=self.dimensions) + 0.8 * fields + 0.8 * own)

    @cached_property
    def bases(self) -> list[UUID]:
        return [uuid5(_NAMESPACE, f"base {number}") for number in range(SEEN[-1])]

    @cached_property
    def directions(self) -> Vectors:
        return unit(np.random.default_rng(2).normal(size=(DIRECTIONS, self.dimensions)))

    def vectors(self, dice: np.random.Generator, topics: Numbers) -> Vectors:
        others = self.centres[dice.integers(TOPICS, size=len(topics))]
        within = dice.normal(size=(len(topics), DIRECTIONS)) / np.sqrt(DIRECTIONS) @ self.directions
        noise = dice.normal(size=others.shape) / np.sqrt(others.shape[1])
        lean = dice.uniform(0, 0.6, size=(len(topics), 1))
        return unit(self.centres[topics] + lean * others + 0.6 * within + 0.2 * noise)

    def questions(self, count: int) -> tuple[list[str], Vectors]:
        """Of topics, as texts and as vectors that are in no chunk."""
        dice = np.random.default_rng(3)
        topics = dice.integers(TOPICS, size=count)
        return [question(dice, topic) for topic in topics], self.vectors(dice, topics)


async def load(pool: Pool, corpus: Corpus, table: str, *, connections: int) -> dict[str, float]:
    """Writes all of it into `chunks` and the `table` of vectors, and builds the indexes of both afterwards.

    Returns:
        Seconds that each took.
    """
    async with connection(pool) as conn:
        indexes = await conn.fetch(
            "SELECT indexname, indexdef FROM pg_indexes WHERE indexname = ANY($1)", ["chunks_tsv", f"{table}_hnsw"]
        )
        for index in indexes:
            await conn.execute(f"DROP INDEX {index['indexname']}")
        await conn.copy_records_to_table("knowledge_bases", records=_bases(corpus), columns=_BASE)
    started = time.perf_counter()
    portions = range(0, corpus.chunks, PORTION)
    await asyncio.gather(*(_load(pool, corpus, table, portions[n::connections]) for n in range(connections)))
    seconds = {"load": time.perf_counter() - started}
    async with connection(pool) as conn:
        for index in indexes:
            started = time.perf_counter()
            await conn.execute(index["indexdef"], timeout=BUILD_TIMEOUT_S)
            seconds[index["indexname"]] = time.perf_counter() - started
        await conn.execute("VACUUM ANALYZE", timeout=LOAD_TIMEOUT_S)
    return seconds


async def _load(pool: Pool, corpus: Corpus, table: str, portions: Sequence[int]) -> None:
    for first in portions:
        documents, chunks, vectors = await asyncio.to_thread(_portion, corpus, first)
        async with connection(pool) as conn, conn.transaction():
            for into, columns, records in (
                ("documents", _DOCUMENT, documents),
                ("chunks", _CHUNK, chunks),
                (table, _VECTOR, vectors),
            ):
                await conn.copy_records_to_table(into, records=records, columns=columns, timeout=LOAD_TIMEOUT_S)


_BASE: Final = ("id", "owner_type", "owner_id", "name")
_DOCUMENT: Final = [
    "id",
    "kb_id",
    "filename",
    "content_type",
    "category",
    "size_bytes",
    "content_sha256",
    "storage_key",
    "uploader",
    "status",
    "live_revision",
    "chunk_count",
    "embedded_count",
    "metadata",
]
_CHUNK: Final = [
    "id",
    "kind",
    "source_id",
    "kb_id",
    "document_id",
    "revision",
    "ordinal",
    "content",
    "content_sha256",
    "token_count",
    "metadata",
    "tier",
    "live",
]
_VECTOR: Final = ("chunk_id", "kb_id", "kind", "live", "embedding")


def _bases(corpus: Corpus) -> Iterator[tuple[Any, ...]]:
    for number, base in enumerate(corpus.bases):
        yield base, "team", team(next(seen for seen in SEEN if number < seen)), f"base {number}"


def _portion(corpus: Corpus, first: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Rows of documents, chunks and vectors."""
    dice = np.random.default_rng([1, first])
    count = min(PORTION, corpus.chunks - first)
    documents, chunks, vectors = [], [], []
    of_document = np.arange(first, first + count) // CHUNKS_OF_A_DOCUMENT
    of_base = of_document % len(corpus.bases)
    topics = np.where(dice.random(count) < 0.5, of_base % TOPICS, dice.integers(TOPICS, size=count))
    categories = dice.choice(list(CATEGORIES), size=count, p=list(CATEGORIES.values()))
    regions, years = dice.integers(REGIONS, size=count), dice.choice(YEARS, size=count)
    rows = zip(_texts(dice, topics), corpus.vectors(dice, topics), strict=True)
    for row, (text, vector) in enumerate(rows):
        number, base = int(of_document[row]), corpus.bases[of_base[row]]
        document, chunk = uuid5(_NAMESPACE, f"document {number}"), uuid5(_NAMESPACE, f"chunk {first + row}")
        digest = hashlib.sha256(chunk.bytes).digest()
        ordinal = row % CHUNKS_OF_A_DOCUMENT
        if ordinal == 0:
            size = min(CHUNKS_OF_A_DOCUMENT, count - row)
            metadata = {"region": f"r{regions[row]}", "year": int(years[row])}
            documents.append(
                (
                    *(document, base, f"{number}.txt", "text/plain", str(categories[row]), 1, digest),
                    *(str(document), base, "ready", 1, size, size, json.dumps(metadata)),
                )
            )
        where: dict[str, object] = {"page": None, "headings": [], "char_start": 0, "char_end": len(text)}
        chunks.append(
            (
                *(chunk, DOCUMENT_CHUNK, str(document), base, document, 1, ordinal, text, digest, 1),
                *(json.dumps(where), Tier.CUSTOMER_FACT, True),
            )
        )
        vectors.append((chunk, base, DOCUMENT_CHUNK, True, Vector(vector)))
    return documents, chunks, vectors


def question(dice: np.random.Generator, topic: int) -> str:
    """Eight words, five of the topic."""
    common = dice.choice(_common(), size=3, p=_zipf(len(_common())))
    return " ".join([*common, *dice.choice(topic_words(topic), size=5, p=_zipf(TOPIC_WORDS))])


def _texts(dice: np.random.Generator, topics: Numbers) -> Iterator[str]:
    ends = np.cumsum(dice.integers(*LENGTHS, size=len(topics)))
    total = int(ends[-1])
    common = _common()[dice.choice(len(_common()), size=total, p=_zipf(len(_common())))]
    of_topic = np.repeat(topics, np.diff(ends, prepend=0))
    own = _topics()[of_topic, dice.choice(TOPIC_WORDS, size=total, p=_zipf(TOPIC_WORDS))]
    words = np.where(dice.random(total) < OWN_WORDS, own, common).tolist()
    start = 0
    for end in ends.tolist():
        yield " ".join(words[start:end])
        start = end


@cache
def _common() -> NDArray[np.object_]:
    """The words of the example documents, commonest first."""
    counts = Counter(word for sentence in sentences() for word in sentence.lower().split())
    return np.array([word for word, _ in counts.most_common()], object)


@cache
def _topics() -> NDArray[np.object_]:
    return np.array([topic_words(topic) for topic in range(TOPICS)], object)


@cache
def topic_words(topic: int) -> list[str]:
    """Commonest first; topics share some."""
    numbers = np.random.default_rng([4, topic]).choice(VOCABULARY, size=TOPIC_WORDS, replace=False)
    return [_word(number) for number in numbers.tolist()]


def _word(number: int) -> str:
    """Pronounceable, and another for each number."""
    syllables: list[str] = []
    while number or len(syllables) < 3:
        number, rest = divmod(number, len(CONSONANTS) * len(VOWELS))
        syllables.append(CONSONANTS[rest // len(VOWELS)] + VOWELS[rest % len(VOWELS)])
    return "".join(syllables)


@cache
def _zipf(count: int) -> NDArray[np.float64]:
    """Zipf and Mandelbrot's law, with the offset that fits English (2.7)."""
    weights = 1 / (np.arange(1, count + 1) + 2.7)
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def unit(vectors: NDArray[Any]) -> Vectors:
    scaled: Vectors = (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)
    return scaled
