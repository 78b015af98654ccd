"""Conditions on documents, in both legs and both scans, against PostgreSQL."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from pgvector import Vector

from kbmesh.postgres import PostgresSettings, open_pool
from services.search.adapters import statements
from services.search.adapters.filters import narrowed
from services.search.adapters.postgres import SERVER_SETTINGS, PostgresPassages
from services.search.domain.filters import Filters, parse_filters
from services.search.domain.retrieval import QueryVector, Scan, Space, Visibility
from tests.support.search import SPACE, Corpus, Text

OWNER = uuid4()
SEARCHED = Space(SPACE.id, SPACE.table, SPACE.dimensions)
ALONG_FIRST_AXIS = QueryVector((1.0, 0.0, 0.0, 0.0), SPACE.id)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
PLAN, MANUAL, NOTE = UUID(int=1), UUID(int=2), UUID(int=3)
HOSTILE = "'; DROP TABLE documents; -- {} $1 \" ? (@ == \\"


@pytest.fixture
async def corpus(postgres_settings: PostgresSettings) -> AsyncIterator[Corpus]:
    async with open_pool(postgres_settings, vectors=True, server_settings=SERVER_SETTINGS) as pool:
        corpus = Corpus(pool)
        await corpus.create_space()
        yield corpus


async def found(corpus: Corpus, filters: Filters | None) -> set[UUID]:
    """The documents that both legs give in both scans, after a check that they agree."""
    visible, store = Visibility(OWNER, filters=filters), PostgresPassages(corpus.pool)
    legs = [
        *[await store.by_keywords("churn", visible, scan) for scan in Scan],
        *[await store.by_vector(ALONG_FIRST_AXIS, SEARCHED, visible, scan) for scan in Scan],
    ]
    [chunks] = {frozenset(candidate.chunk_id for candidate in leg) for leg in legs}
    assert await store.count_chunks(visible, at_most=100) == len(chunks)
    rows = await corpus.pool.fetch("SELECT document_id FROM chunks WHERE id = ANY($1)", list(chunks))
    return {row["document_id"] for row in rows}


async def test_every_condition_narrows_both_legs_in_both_scans(corpus: Corpus) -> None:
    kb_id = await corpus.add_base(OWNER)
    churn = [Text("churn"), Text("churn again")]
    await corpus.add_document(
        kb_id,
        *churn,
        document_id=PLAN,
        category="strategy",
        content_type="application/pdf",
        metadata={"owner": "Finance", "year": 2026, "share": 0.5, "due": "2026-03-01", "tags": ["a", "b"]},
        created_at=NEW_YEAR,
    )
    await corpus.add_document(
        kb_id,
        *churn,
        document_id=MANUAL,
        metadata={"owner": HOSTILE, "year": 2024, "due": "2024-12-31", "audited": True, HOSTILE: None},
        created_at=NEW_YEAR - timedelta(days=1),
    )
    await corpus.add_document(kb_id, *churn, document_id=NOTE, metadata={"year": "2026", "tags": ["b"]})
    await corpus.add_document(await corpus.add_base(uuid4()), *churn, metadata={"owner": "Finance"})

    cases: list[tuple[dict[str, Any], set[UUID]]] = [
        ({}, {PLAN, MANUAL, NOTE}),
        ({"category": "strategy"}, {PLAN}),
        ({"category": "other"}, {MANUAL, NOTE}),
        ({"content_type": "application/pdf"}, {PLAN}),
        ({"content_type": HOSTILE}, set()),
        ({"document_ids": [str(PLAN), str(NOTE), str(uuid4())]}, {PLAN, NOTE}),
        ({"document_ids": [str(PLAN)], "category": "other"}, set()),
        ({"created_after": NEW_YEAR}, {PLAN, NOTE}),
        ({"created_before": NEW_YEAR}, {MANUAL}),
        ({"created_after": NEW_YEAR, "created_before": NEW_YEAR + timedelta(seconds=1)}, {PLAN}),
        ({"created_after": datetime.min.replace(tzinfo=UTC)}, {PLAN, MANUAL, NOTE}),
        ({"created_before": datetime.max.replace(tzinfo=UTC)}, {PLAN, MANUAL, NOTE}),
        ({"metadata": {"owner": "Finance"}}, {PLAN}),
        ({"metadata": {"owner": HOSTILE, HOSTILE: None}}, {MANUAL}),
        ({"metadata": {"year": 2026.0}}, {PLAN}),
        ({"metadata": {"year": "2026"}}, {NOTE}),
        ({"metadata": {"audited": True}}, {MANUAL}),
        ({"metadata": {"audited": 1.0}}, set()),
        ({"metadata": {"tags": ["b"]}}, {PLAN, NOTE}),
        ({"metadata": {"tags": ["b", "a"]}}, {PLAN}),
        ({"metadata": {"year": {"gte": 2025}}}, {PLAN}),
        ({"metadata": {"year": {"gte": 2024, "lte": 2025.5}}}, {MANUAL}),
        ({"metadata": {"year": {"gte": "2"}}}, {NOTE}),
        ({"metadata": {"share": {"gte": 0.5, "lte": 0.5}}}, {PLAN}),
        ({"metadata": {"due": {"gte": "2025", "lte": "2026-12-31"}}}, {PLAN}),
        ({"metadata": {"due": {"lte": "2026"}, "year": {"gte": 0}, "audited": True}}, {MANUAL}),
        ({"metadata": {"owner": {"gte": HOSTILE, "lte": HOSTILE}}}, {MANUAL}),
        ({"metadata": {HOSTILE: {"gte": HOSTILE}}}, set()),
    ]
    for asked, expected in cases:
        assert await found(corpus, parse_filters(**asked)) == expected, asked


@pytest.mark.parametrize("scan", Scan)
async def test_a_word_is_as_rare_as_in_all_that_is_visible_whatever_is_asked_for(
    corpus: Corpus, scan: Scan
) -> None:
    kb_id = await corpus.add_base(OWNER)
    await corpus.add_document(kb_id, *[Text("a report")] * 40, *[Text("a porcupine")] * 4)
    rare, common = await corpus.add_document(
        kb_id, Text("a porcupine"), Text("a report, a report, a report"), document_id=NOTE
    )
    visible = Visibility(OWNER, filters=parse_filters(document_ids=[str(NOTE)]))

    found = await PostgresPassages(corpus.pool).by_keywords("reports on porcupines", visible, scan)

    assert [candidate.chunk_id for candidate in found] == [rare, common]


async def test_a_filter_leaves_the_scan_that_was_chosen(corpus: Corpus) -> None:
    kb_id = await corpus.add_base(OWNER)
    for number in range(10):
        texts = (Text(f"word{n}", (n, 1, 0, 0)) for n in range(100))
        await corpus.add_document(kb_id, *texts, metadata={"year": number}, document_id=UUID(int=number))
    await corpus.pool.execute("VACUUM ANALYZE")
    filters = parse_filters(metadata={"year": {"gte": 3}})
    caller: tuple[UUID, list[UUID], None] = (OWNER, [], None)

    async def plan(statement: str, scan: Scan, narrow: Filters | None, *arguments: Any) -> str:
        statement = statement.replace("{table}", SPACE.table).replace("{dimensions}", str(SPACE.dimensions))
        query, *values = narrowed(
            Visibility(OWNER, filters=narrow), scan, f"EXPLAIN {statement}", *caller, *arguments
        )
        async with corpus.pool.acquire() as conn, conn.transaction():
            if statement.startswith(statements.NEAREST_BY_INDEX[:20]) and scan is Scan.INDEX:
                await conn.execute(statements.FORCE_INDEX)
            return "\n".join(row[0] for row in await conn.fetch(query, *values))

    vector = Vector([1, 0, 0, 0])
    one = Filters(document_ids=frozenset({UUID(int=3)}))
    assert f"{SPACE.table}_hnsw" in await plan(statements.NEAREST_BY_INDEX, Scan.INDEX, filters, vector, 50, 100)
    assert f"{SPACE.table}_hnsw" not in await plan(statements.NEAREST_EXACT, Scan.EXACT, filters, vector, 50)
    assert "chunks_document" in await plan(statements.NEAREST_EXACT, Scan.EXACT, one, vector, 50)
