"""How PostgreSQL goes about the statements of search, which it plans by what it takes callers to see."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from pgvector import SparseVector, Vector

from kbmesh.postgres import Pool, PostgresSettings, open_pool
from services.search.adapters import statements
from services.search.adapters.filters import narrowed
from services.search.adapters.postgres import SERVER_SETTINGS, PostgresPassages
from services.search.domain.retrieval import QueryVector, Scan, Space, Visibility
from tests.support.search import SPACE, Corpus, Text

OWNER = uuid4()
VISIBLE = Visibility(OWNER)


@pytest.fixture
async def search_pool(postgres_settings: PostgresSettings) -> AsyncIterator[Pool]:
    async with open_pool(postgres_settings, vectors=True, server_settings=SERVER_SETTINGS) as pool:
        yield pool


@pytest.fixture
async def corpus(search_pool: Pool) -> Corpus:
    corpus = Corpus(search_pool)
    await corpus.create_space()
    return corpus


async def test_plans_do_not_depend_on_how_many_bases_there_are(search_pool: Pool, corpus: Corpus) -> None:
    """One of two has a tenth of the chunks: the planner takes it to have half, and would read the whole table."""
    mine, other = await corpus.add_base(OWNER), await corpus.add_base(uuid4())
    await corpus.add_document(mine, *(Text(f"mine{n}") for n in range(30)))
    await corpus.add_document(other, *(Text(f"other{n}") for n in range(270)))
    await search_pool.execute("VACUUM ANALYZE")
    names = {"table": SPACE.table, "dimensions": SPACE.dimensions}
    word, vector = SparseVector({6: 1.0}, 1_000_000_000), Vector([1, 0, 0, 0])

    async def plan(scan: Scan, statement: str, *arguments: Any) -> str:
        asked, *values = narrowed(VISIBLE, scan, statement.format_map(names), OWNER, [], None, *arguments)
        return str(await search_pool.fetchval("EXPLAIN (FORMAT JSON) " + asked, *values))

    for statement, arguments in (
        (statements.COUNT_CHUNKS, (10_001,)),
        (statements.NEAREST_EXACT, (vector, 50)),
        (statements.BY_KEYWORDS_EXACT, (word, 50)),
    ):
        assert "Seq Scan" not in await plan(Scan.EXACT, statement, *arguments)
    # Whether a base is seen is asked for each row that the index gives: not by going through all that are.
    assert "hashed SubPlan" in await plan(Scan.INDEX, statements.NEAREST_BY_INDEX, vector, 50, 100)
    by_keywords = await plan(Scan.INDEX, statements.BY_KEYWORDS_BY_INDEX, word, 50, "mine7", 50, "other8", 50)
    assert "hashed SubPlan" in by_keywords
    assert "kb_id = ANY" not in by_keywords


async def test_both_legs_answer_without_prepared_statements(
    postgres_settings: PostgresSettings, corpus: Corpus
) -> None:
    """As behind PgBouncer in transaction mode."""
    [mine] = await corpus.add_document(await corpus.add_base(OWNER), Text("churn"))
    settings = postgres_settings.model_copy(update={"statement_cache_size": 0})
    space = Space(SPACE.id, SPACE.table, SPACE.dimensions)

    async with open_pool(settings, vectors=True, server_settings=SERVER_SETTINGS) as pool:
        store = PostgresPassages(pool)
        for scan in Scan:
            nearest = await store.by_vector(QueryVector((1.0, 0.0, 0.0, 0.0), SPACE.id), space, VISIBLE, scan)
            keyword = await store.by_keywords("churn", VISIBLE, scan)
            assert [one.chunk_id for one in (*nearest, *keyword)] == [mine, mine]
        assert not await pool.fetch("SELECT FROM pg_prepared_statements")
