"""How much of what an exact search finds the scan by index finds, for callers who see little or much."""

from collections.abc import AsyncIterator
from statistics import mean
from uuid import UUID, uuid4

import numpy as np
import pytest
from pgvector import Vector

from deploy.embedded.benchmarks.corpus import unit
from deploy.embedded.benchmarks.recall import recall
from kbmesh.postgres import Pool, PostgresSettings, open_pool
from kbmesh.provenance import Category
from services.embedder.domain.spaces import Space
from services.search.adapters.postgres import SERVER_SETTINGS, PostgresPassages
from services.search.domain.filters import Filters, Range
from services.search.domain.retrieval import QueryVector, Scan, Visibility
from services.search.domain.retrieval import Space as SearchedSpace
from tests.support.vectors import open_space

SPACE = Space("recall", 32)
SEARCHED = SearchedSpace(SPACE.id, SPACE.table, SPACE.dimensions)
BASES, DOCUMENTS, CHUNKS = 500, 1_000, 4_000
TOPICS = 40
QUESTIONS = 10
TEAMS = {seen: uuid4() for seen in (5, 50, BASES)}
"""Each has the bases up to that number, from where the one before it ends."""
SELECTIONS = {
    "a hundredth of the bases": (5, None),
    "a tenth": (50, None),
    "all": (BASES, None),
    "a category": (BASES, Filters(category=Category.STRATEGY)),
    "some years": (BASES, Filters(ranges=(Range("year", 2020, None),))),
    "a category and some years": (BASES, Filters(category=Category.STRATEGY, ranges=(Range("year", 2015, None),))),
}

_BASES = "INSERT INTO knowledge_bases (id, owner_type, owner_id, name) SELECT id, 'team', owner, 'base'"
_FROM_BASES = "FROM unnest($1::uuid[], $2::uuid[]) AS base (id, owner)"
_DOCUMENTS = """
INSERT INTO documents (id, kb_id, filename, content_type, category, size_bytes, content_sha256, storage_key,
    uploader, status, live_revision, chunk_count, embedded_count, metadata)
SELECT id, kb_id, id, 'text/plain', CASE WHEN n % 8 = 0 THEN 'strategy' ELSE 'other' END, 1, sha256('d'), id,
    kb_id, 'ready', 1, $2, $2, jsonb_build_object('year', 2007 + n % 20)
FROM (SELECT gen_random_uuid() AS id, ($1::uuid[])[1 + n % cardinality($1)] AS kb_id, n
      FROM generate_series(1, $3) AS n) AS made
"""
_CHUNKS = """
INSERT INTO chunks (id, kind, source_id, kb_id, document_id, revision, ordinal, content, content_sha256,
    token_count, tier, live)
SELECT gen_random_uuid(), 'document_chunk', id, kb_id, id, 1, n,
    'topic' || hashtext(id::text || n) % 40 || ' word' || abs(hashtext(n || id::text)) % 300,
    sha256('c'), 3, 'CustomerFact', true
FROM documents, generate_series(1, $1) AS n
"""


@pytest.fixture
async def search_pool(postgres_settings: PostgresSettings) -> AsyncIterator[Pool]:
    async with open_pool(postgres_settings, vectors=True, server_settings=SERVER_SETTINGS) as pool:
        yield pool


def visible(seen: int, filters: Filters | None = None) -> Visibility:
    return Visibility(uuid4(), frozenset(team for to, team in TEAMS.items() if to <= seen), filters=filters)


async def fill(pool: Pool) -> list[QueryVector]:
    """Vectors around topics; the questions."""
    await open_space(pool, SPACE)
    dice = np.random.default_rng(11)
    centres = unit(dice.normal(size=(TOPICS, SPACE.dimensions)))

    def around(count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        noise = dice.normal(size=(count, SPACE.dimensions)) / np.sqrt(SPACE.dimensions)
        return unit(centres[dice.integers(TOPICS, size=count)] + noise)

    bases = [uuid4() for _ in range(BASES)]
    owners = [next(team for to, team in TEAMS.items() if number < to) for number in range(BASES)]
    await pool.execute(f"{_BASES} {_FROM_BASES}", bases, owners)
    await pool.execute(_DOCUMENTS, bases, CHUNKS // DOCUMENTS, DOCUMENTS)
    await pool.execute(_CHUNKS, CHUNKS // DOCUMENTS)
    ids: list[tuple[UUID, UUID]] = [
        (row["id"], row["kb_id"]) for row in await pool.fetch("SELECT id, kb_id FROM chunks ORDER BY source_id")
    ]
    index = await pool.fetchval("SELECT indexdef FROM pg_indexes WHERE indexname = $1", f"{SPACE.table}_hnsw")
    await pool.execute(f"DROP INDEX {SPACE.table}_hnsw")
    await pool.copy_records_to_table(
        SPACE.table,
        records=[
            (*one, "document_chunk", True, Vector(vector))
            for one, vector in zip(ids, around(len(ids)), strict=True)
        ],
    )
    await pool.execute(index)
    await pool.execute("ANALYZE")
    return [QueryVector(tuple(vector.tolist()), SPACE.id) for vector in around(QUESTIONS)]


async def test_the_index_finds_what_an_exact_search_finds_whatever_share_is_visible(search_pool: Pool) -> None:
    questions = await fill(search_pool)
    store = PostgresPassages(search_pool)

    for name, (seen, filters) in SELECTIONS.items():
        mine = visible(seen, filters)
        nearest, words = [], []
        for number, vector in enumerate(questions):
            by_vector = {scan: await store.by_vector(vector, SEARCHED, mine, scan) for scan in Scan}
            text = f"topic{number} word{number}"
            by_word = {scan: await store.by_keywords(text, mine, scan) for scan in Scan}
            nearest.append(recall(by_vector[Scan.INDEX], by_vector[Scan.EXACT]))
            words.append(recall(by_word[Scan.INDEX], by_word[Scan.EXACT]))
        assert mean(nearest) >= 0.98, name
        assert mean(words) >= 0.98, name
