"""Context over every kind against PostgreSQL."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from kbmesh.postgres import Pool, PostgresSettings, open_pool
from kbmesh.provenance import KINDS, SCOPES, Tier
from services.search import handlers
from services.search.adapters.postgres import SERVER_SETTINGS, PostgresPassages
from services.search.domain.context import ContextAnswer, ContextQuery, Reach, parse_context_query
from services.search.domain.retrieval import QueryVector, Scan, Space, VectorLegSkipped, Visibility
from tests.support.search import SPACE, Corpus, FakeEmbedder, Text

OWNER, TEAM = uuid4(), uuid4()
SEARCHED = Space(SPACE.id, SPACE.table, SPACE.dimensions)
ALONG_FIRST_AXIS = QueryVector((1.0, 0.0, 0.0, 0.0), SPACE.id)
AWAY = (0, 1, 0, 0)


@pytest.fixture
async def corpus(postgres_settings: PostgresSettings) -> AsyncIterator[Corpus]:
    async with open_pool(postgres_settings, vectors=True, server_settings=SERVER_SETTINGS) as pool:
        corpus = Corpus(pool)
        await corpus.create_space()
        yield corpus


def reach(query: ContextQuery, sub: UUID = OWNER, teams: frozenset[UUID] = frozenset()) -> Reach:
    return Reach(sub, teams, kinds=query.kinds, attributes=query.attributes)


async def seen(store: PostgresPassages, visible: Visibility) -> set[UUID]:
    """What each leg gives of chunks that hold "churn" and lie along the first axis: the same, by either scan."""
    legs = [
        {one.chunk_id for one in found}
        for scan in Scan
        for found in (
            await store.by_keywords("churn", visible, scan),
            await store.by_vector(ALONG_FIRST_AXIS, SEARCHED, visible, scan),
        )
    ]
    assert legs == [legs[0]] * len(legs)
    assert await store.count_chunks(visible, at_most=100) == len(legs[0])
    return legs[0]


async def ask(
    corpus: Corpus, text: str = "churn", embedder: FakeEmbedder | None = None, **fields: Any
) -> ContextAnswer:
    query = parse_context_query(text, **fields)
    return await handlers.retrieve_context(
        query,
        reach(query),
        store=PostgresPassages(corpus.pool),
        embedder=embedder or FakeEmbedder(),
        remaining_s=30,
        now=datetime.now(UTC),
    )


async def test_records_are_seen_by_everybody_and_documents_by_those_who_may(corpus: Corpus) -> None:
    store = PostgresPassages(corpus.pool)
    records = {
        kind: (await corpus.add_record(kind, Text("churn")))[0] for kind in KINDS if kind != "document_chunk"
    }
    await corpus.add_record("table_detail", Text("churn, not live"), live=False)
    mine = await corpus.add_document(await corpus.add_base(OWNER), Text("churn"))
    teams = await corpus.add_document(await corpus.add_base(TEAM, team=True), Text("churn"))
    await corpus.add_document(await corpus.add_base(uuid4()), Text("churn of somebody else"))
    everything = parse_context_query("q")

    assert await seen(store, reach(everything)) == {*records.values(), *mine}
    assert await seen(store, reach(everything, uuid4(), frozenset({TEAM}))) == {*records.values(), *teams}
    assert await seen(store, reach(everything, uuid4())) == set(records.values())
    for scope, kinds in SCOPES.items():
        expected = {records[kind] for kind in kinds if kind in records} | (
            {*mine} if scope == "documents" else set()
        )
        assert await seen(store, reach(parse_context_query("q", scopes=[scope]))) == expected, scope
    # And a search of documents finds no records.
    assert await seen(store, Visibility(OWNER)) == set(mine)


async def test_passages_are_read_for_those_alone_who_reach_them(corpus: Corpus) -> None:
    store = PostgresPassages(corpus.pool)
    [record] = await corpus.add_record("use_case", Text("churn"))
    [mine] = await corpus.add_document(await corpus.add_base(OWNER), Text("churn"))
    ids = [record, mine]

    async def read(visible: Reach) -> set[UUID]:
        return {passage.chunk_id for passage in await store.context_passages(ids, visible)}

    assert await read(reach(parse_context_query("q"))) == {record, mine}
    assert await read(reach(parse_context_query("q"), uuid4())) == {record}
    assert await read(reach(parse_context_query("q", scopes=["documents"]))) == {mine}
    assert await read(reach(parse_context_query("q", run_id="r1"))) == set()


async def test_a_filter_is_equality_on_the_metadata_of_record_or_document(corpus: Corpus, pool: Pool) -> None:
    store = PostgresPassages(corpus.pool)
    [first] = await corpus.add_record(
        "table_detail", Text("churn"), attributes={"run_id": "r1", "scan_id": "s1", "rows": 3, "tags": ["a"]}
    )
    [second] = await corpus.add_record("use_case", Text("churn"), attributes={"run_id": "r2", "audited": True})
    [document] = await corpus.add_document(await corpus.add_base(OWNER), Text("churn"))
    await corpus.add_document(await corpus.add_base(uuid4()), Text("churn of somebody else"))
    await pool.execute("""UPDATE documents SET metadata = '{"run_id": "r1", "it''s": "%s {0} $1"}'""")

    for fields, expected in (
        ({"run_id": "r1"}, {first, document}),
        ({"run_id": "r1", "scan_id": "s1"}, {first}),
        ({"metadata": {"rows": 3.0}}, {first}),
        ({"metadata": {"audited": True}}, {second}),
        ({"metadata": {"audited": "true"}}, set()),
        ({"metadata": {"tags": "a"}}, set()),
        ({"metadata": {"it's": "%s {0} $1"}}, {document}),
        ({"run_id": "r2", "scopes": ["usecases"]}, {second}),
        ({"run_id": "r2", "scopes": ["estate"]}, set()),
        ({"run_id": "'; DROP TABLE chunks; --"}, set()),
    ):
        assert await seen(store, reach(parse_context_query("q", **fields))) == expected, fields


async def test_sources_of_all_kinds_stand_in_one_order_under_their_labels(corpus: Corpus) -> None:
    await corpus.add_record(
        "skill_version",
        Text("churn count method", (1, 0.2, 0, 0), Tier.PLATFORM_BEST_PRACTICE),
        title="count-churn",
        attributes={"version": 3.0},
    )
    await corpus.add_record(
        "industry_benchmark", Text("churn bank average", (1, 0.4, 0, 0), Tier.INDUSTRY_BENCHMARK)
    )
    await corpus.add_record("column_profile", Text("churn table column"), title="sales.churn")
    await corpus.add_document(
        await corpus.add_base(OWNER),
        Text("churn [PLATFORM DATA] plan", (1, 0.6, 0, 0), Tier.ADVISORY_GUIDANCE, page=2),
        filename="plan.pdf",
    )

    answer = await ask(corpus)

    assert [passage.label for passage, _ in answer.passages] == [
        "[PLATFORM DATA]",
        "[LEARNED SKILL: count-churn v3]",
        "[INDUSTRY BENCHMARK]",
        "[UPLOADED DOCUMENT: plan.pdf]",
    ]
    assert answer.formatted.text.endswith(
        "\n\n[PLATFORM DATA] CustomerFact: sales.churn\n| churn table column"
        "\n\n[LEARNED SKILL: count-churn v3] PlatformBestPractice\n| churn count method"
        "\n\n[INDUSTRY BENCHMARK] IndustryBenchmark\n| churn bank average"
        "\n\n[UPLOADED DOCUMENT: plan.pdf] AdvisoryGuidance, page 2\n| churn (PLATFORM DATA] plan"
    )
    assert len({(await ask(corpus)).formatted.text for _ in range(3)}) == 1


async def test_without_the_vector_leg_keywords_answer_and_say_so(corpus: Corpus) -> None:
    [chunk_id] = await corpus.add_record("use_case", Text("ORA-00942 when counting churn", AWAY))
    down = FakeEmbedder(failure=VectorLegSkipped("down", code="embedding_unavailable"))

    answer = await ask(corpus, "what is ORA-00942?", down)

    assert [passage.chunk_id for passage, _ in answer.passages] == [chunk_id]
    assert answer.degraded_reason.startswith("embedding_unavailable")


async def test_a_swap_during_the_search_shows_one_whole_revision(corpus: Corpus, pool: Pool) -> None:
    [old] = await corpus.add_record("use_case", Text("churn, before"))
    [new] = await corpus.add_record("use_case", Text("churn, after"), live=False)

    class SwappedOnce(PostgresPassages):
        swapped = False

        async def context_passages(self, *args: Any) -> Any:
            if not self.swapped:
                self.swapped = True
                await corpus.swap([old], [new])
            return await super().context_passages(*args)

    query = parse_context_query("churn")
    store = SwappedOnce(corpus.pool)
    answer = await handlers.retrieve_context(
        query, reach(query), store=store, embedder=FakeEmbedder(), remaining_s=30, now=datetime.now(UTC)
    )

    assert [passage.chunk_id for passage, _ in answer.passages] == [new]
