"""No passage that the caller cannot see, or did not ask for, whatever kinds there are of whoever's."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbmesh.postgres import PostgresSettings, open_pool
from services.search import handlers
from services.search.adapters.postgres import SERVER_SETTINGS, PostgresPassages
from services.search.domain.context import ContextQuery, Reach
from services.search.domain.retrieval import QueryVector, Scan, Space
from tests.support.search import SPACE, Corpus, FakeEmbedder, Text

SEARCHED = Space(SPACE.id, SPACE.table, SPACE.dimensions)
ALONG_FIRST_AXIS = QueryVector((1.0, 0.0, 0.0, 0.0), SPACE.id)
RECORD_KINDS = ["table_detail", "use_case", "skill_version"]
RUNS = [None, "r1", "r2"]


@dataclass(frozen=True)
class Document:
    owner: int
    """0 the caller, 1 somebody else, 2 a team of the caller's, 3 another team."""
    run: str | None


@dataclass(frozen=True)
class Record:
    kind: str
    run: str | None


worlds = st.lists(
    st.builds(Document, st.integers(0, 3), st.sampled_from(RUNS))
    | st.builds(Record, st.sampled_from(RECORD_KINDS), st.sampled_from(RUNS)),
    min_size=4,
    max_size=8,
)
wanted_kinds = st.frozensets(st.sampled_from(["document_chunk", *RECORD_KINDS]), min_size=1)


@pytest.fixture
async def corpus(postgres_settings: PostgresSettings) -> AsyncIterator[Corpus]:
    async with open_pool(postgres_settings, vectors=True, server_settings=SERVER_SETTINGS) as pool:
        corpus = Corpus(pool)
        await corpus.create_space()
        yield corpus


async def found(store: PostgresPassages, reach: Reach) -> set[UUID]:
    """What a request gives, after a check that each leg alone, and the count, say the same."""
    answer = await handlers.retrieve_context(
        ContextQuery("churn", reach.kinds, reach.attributes, top_k=50),
        reach,
        store=store,
        embedder=FakeEmbedder(),
        remaining_s=30,
        now=datetime.now(UTC),
    )
    passages = {passage.chunk_id for passage, _ in answer.passages}
    for scan in Scan:
        assert {one.chunk_id for one in await store.by_keywords("churn", reach, scan)} == passages
        assert {one.chunk_id for one in await store.by_vector(ALONG_FIRST_AXIS, SEARCHED, reach, scan)} == passages
    assert await store.count_chunks(reach, at_most=50) == len(passages)
    return passages


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(worlds, wanted_kinds, st.sampled_from(RUNS))
async def test_context_is_all_that_is_visible_and_asked_for_and_nothing_else(
    corpus: Corpus, world: list[Document | Record], kinds: frozenset[str], run: str | None
) -> None:
    await corpus.pool.execute("DELETE FROM chunks; DELETE FROM records")
    owners = [uuid4() for _ in range(4)]
    expected: set[UUID] = set()
    for source in world:
        if isinstance(source, Record):
            kind, visible = source.kind, True
            attributes = {} if source.run is None else {"run_id": source.run}
            ids = await corpus.add_record(kind, Text(f"churn {uuid4().hex}"), attributes=attributes)
        else:
            kind, visible = "document_chunk", source.owner in (0, 2)
            kb_id = await corpus.add_base(owners[source.owner], team=source.owner >= 2)
            ids = await corpus.add_document(kb_id, Text(f"churn {uuid4().hex}"))
            if source.run is not None:
                await corpus.pool.execute(
                    "UPDATE documents SET metadata = jsonb_build_object('run_id', $2::text) WHERE kb_id = $1",
                    kb_id,
                    source.run,
                )
        if visible and kind in kinds and run in (None, source.run):
            expected |= set(ids)
    reach = Reach(
        owners[0],
        frozenset({owners[2]}),
        kinds=kinds,
        attributes={} if run is None else {"run_id": run},
    )

    assert await found(PostgresPassages(corpus.pool), reach) == expected
