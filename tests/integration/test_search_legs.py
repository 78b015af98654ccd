"""Both legs and the reading of passages against PostgreSQL."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from pgvector import SparseVector, Vector

from kbmesh.postgres import Pool, PostgresSettings, open_pool
from kbmesh.provenance import Category, Tier
from services.search import handlers
from services.search.adapters import statements
from services.search.adapters.postgres import SERVER_SETTINGS, PostgresPassages
from services.search.domain.passages import Answer
from services.search.domain.query import parse_query
from services.search.domain.retrieval import CANDIDATES, QueryVector, Scan, Space, VectorLegSkipped, Visibility
from tests.support.search import SPACE, Corpus, FakeEmbedder, Text

OWNER = uuid4()
VISIBLE = Visibility(OWNER)
SEARCHED = Space(SPACE.id, SPACE.table, SPACE.dimensions)
ALONG_FIRST_AXIS = QueryVector((1.0, 0.0, 0.0, 0.0), SPACE.id)

ODD_QUESTIONS = [
    "'; DROP TABLE chunks; --",
    "churn & | ! <-> :* () 'quo''te' \\ back\\slash \\' end\\",
    "http://example.com/it's/'a'|b?x='y'&z=!1",
    "%s {0} $1 :name ${x}",
    "*:* <-> !!! &&& |||",
    "C:\\Users\\churn\\'s file-name/path?x=1&y='2'",
    "tëst 解約率とは何ですか churn 🦔‍🔥 עברית",
    "\u202eright to left\u202c \u200b\ufeff \U0010fffe",
    "a" * 4_000,
    "' " * 2_000,
    "e\u0301" * 2_000,
    "\U0001f9a6" * 4_000,
]


@pytest.fixture
async def search_pool(postgres_settings: PostgresSettings) -> AsyncIterator[Pool]:
    async with open_pool(postgres_settings, vectors=True, server_settings=SERVER_SETTINGS) as pool:
        yield pool


@pytest.fixture
async def corpus(search_pool: Pool) -> Corpus:
    corpus = Corpus(search_pool)
    await corpus.create_space()
    return corpus


@pytest.fixture
def store(search_pool: Pool) -> PostgresPassages:
    return PostgresPassages(search_pool)


async def ask(store: PostgresPassages, question: str, *, limit: int = 5) -> Answer:
    return await handlers.kb_search(
        parse_query(question, limit=limit),
        VISIBLE,
        store=store,
        embedder=FakeEmbedder(),
        remaining_s=30,
        now=datetime.now(UTC),
    )


async def test_every_connection_has_the_settings_of_search(search_pool: Pool) -> None:
    async with search_pool.acquire() as conn:
        await conn.execute("SELECT '[1]'::vector")
    for name, value in SERVER_SETTINGS.items():
        assert await search_pool.fetchval("SELECT current_setting($1)", name) == value


@pytest.mark.parametrize("scan", Scan)
async def test_the_vector_leg_gives_the_nearest_by_cosine(
    store: PostgresPassages, corpus: Corpus, scan: Scan
) -> None:
    kb_id = await corpus.add_base(OWNER)
    far, near, opposite, long = await corpus.add_document(
        kb_id,
        Text("far", (0, 1, 0, 0)),
        Text("near", (1, 0.1, 0, 0), Tier.INDUSTRY_BENCHMARK),
        Text("opposite", (-1, 0, 0, 0)),
        Text("long", (100, 0, 0, 0)),
    )

    found = await store.by_vector(ALONG_FIRST_AXIS, SEARCHED, VISIBLE, scan)

    similarity = {candidate.chunk_id: candidate.similarity for candidate in found}
    assert similarity == pytest.approx({long: 1, near: 1 / np.hypot(1, 0.1), far: 0, opposite: -1})
    assert {candidate.tier for candidate in found if candidate.chunk_id == near} == {Tier.INDUSTRY_BENCHMARK}


async def test_the_scan_that_was_chosen_is_the_one_that_is_made(search_pool: Pool, corpus: Corpus) -> None:
    """Where the planner by itself would take the other one."""
    mine, other = await corpus.add_base(OWNER), await corpus.add_base(uuid4())
    await corpus.add_document(mine, Text("mine", (1, 1, 0, 0)))
    await corpus.add_document(other, *(Text(f"word{n}", (n, 1, 0, 0)) for n in range(1_000)))
    # Among many bases a caller is taken to see next to nothing, which is then sorted rather than sought.
    await search_pool.execute("UPDATE vectors_test_4 SET kb_id = gen_random_uuid() WHERE kb_id = $1", other)
    await search_pool.execute("VACUUM ANALYZE")
    names = {"table": SPACE.table, "dimensions": SPACE.dimensions}
    caller: tuple[UUID, list[UUID], None] = (OWNER, [], None)

    async def plan(statement: str, *arguments: Any) -> str:
        async with search_pool.acquire() as conn, conn.transaction():
            if statement is statements.NEAREST_BY_INDEX:
                await conn.execute(statements.FORCE_INDEX)
            explained = "EXPLAIN (FORMAT JSON) " + statement.format_map(names)
            return str(await conn.fetchval(explained, *caller, *arguments))

    vector, word = Vector([1, 0, 0, 0]), SparseVector({6: 1.0}, 1_000_000_000)
    assert f"{SPACE.table}_hnsw" not in await plan(statements.NEAREST_EXACT, vector, 50)
    assert f"{SPACE.table}_hnsw" in await plan(statements.NEAREST_BY_INDEX, vector, 50, 100)
    assert "chunks_tsv" not in await plan(statements.BY_KEYWORDS_EXACT, word, 50)
    assert "chunks_tsv" in await plan(statements.BY_KEYWORDS_BY_INDEX, word, 50, "word7", 50, "word8", 50)


async def test_both_scans_agree_on_a_base_that_is_a_tenth_of_the_table(
    store: PostgresPassages, corpus: Corpus
) -> None:
    random = np.random.default_rng(7)
    mine, other = await corpus.add_base(OWNER), await corpus.add_base(uuid4())
    for kb_id, size in ((mine, 150), (other, 1_350)):
        await corpus.add_document(
            kb_id, *(Text("text", vector) for vector in random.normal(size=(size, SPACE.dimensions)).tolist())
        )

    exact = await store.by_vector(ALONG_FIRST_AXIS, SEARCHED, VISIBLE, Scan.EXACT)
    index = await store.by_vector(ALONG_FIRST_AXIS, SEARCHED, VISIBLE, Scan.INDEX)

    assert len(exact) == len(index) == 50
    assert len({one.chunk_id for one in exact} & {one.chunk_id for one in index}) >= 48


async def test_a_passage_brings_the_chunks_beside_it_of_its_own_revision(
    store: PostgresPassages, corpus: Corpus
) -> None:
    kb_id, document_id = await corpus.add_base(OWNER), uuid4()
    texts = [Text(f"chunk {ordinal}", page=ordinal, start=10 * ordinal) for ordinal in range(5)]
    ids = await corpus.add_document(kb_id, *texts, document_id=document_id)
    await corpus.add_revision(kb_id, document_id, 2, *[Text("not yet live")] * 5, live=False)
    await corpus.add_document(kb_id, *[Text("another document")] * 5)

    [alone] = await store.passages([ids[3]], VISIBLE)
    [passage] = await store.passages([ids[3]], VISIBLE, around=2)

    assert alone.parts == ()
    assert [(part.ordinal, part.content, part.page) for part in passage.parts] == [
        (ordinal, f"chunk {ordinal}", ordinal) for ordinal in range(1, 5)
    ]
    assert [(part.char_start, part.char_end) for part in passage.parts[:2]] == [(10, 17), (20, 27)]
    assert replace(passage, parts=()) == alone
    assert await store.passages(ids, Visibility(uuid4()), around=2) == []


async def test_visible_chunks_are_counted_up_to_a_bound(store: PostgresPassages, corpus: Corpus) -> None:
    kb_id = await corpus.add_base(OWNER)
    await corpus.add_document(kb_id, *[Text("text")] * 7)
    await corpus.add_document(kb_id, Text("text"), live=False)
    await corpus.add_document(await corpus.add_base(uuid4()), Text("somebody else's"))

    assert await store.count_chunks(VISIBLE, at_most=100) == 7
    assert await store.count_chunks(VISIBLE, at_most=5) == 5


@pytest.mark.parametrize("scan", Scan)
async def test_the_keyword_leg_matches_any_word_in_its_stem(
    store: PostgresPassages, corpus: Corpus, scan: Scan
) -> None:
    kb_id = await corpus.add_base(OWNER)
    both, one, _ = await corpus.add_document(
        kb_id,
        Text("Churn is measured monthly."),
        Text("The churned customers are many, and they are written to in the following week by the office."),
        Text("Nothing of the kind"),
    )

    found = await store.by_keywords("how do you measure the churning?", VISIBLE, scan)

    assert [candidate.chunk_id for candidate in found] == [both, one]
    assert found[0].similarity > found[1].similarity > 0


async def test_a_question_without_words_leaves_the_keyword_leg_empty(
    store: PostgresPassages, corpus: Corpus
) -> None:
    await corpus.add_document(await corpus.add_base(OWNER), Text("the and of everything"))

    for question in ("the of and", "?!", "🦔"):
        assert await store.by_keywords(question, VISIBLE, Scan.EXACT) == [], question


async def test_no_question_is_read_as_syntax(store: PostgresPassages, corpus: Corpus) -> None:
    kb_id = await corpus.add_base(OWNER)
    # The vector is opposite to that of every question, so that only keywords can find them.
    ids = await corpus.add_document(kb_id, *(Text(f"churn {text}", (-1, 0, 0, 0)) for text in ODD_QUESTIONS))

    for chunk_id, question in zip(ids, ODD_QUESTIONS, strict=True):
        answer = await ask(store, question)
        assert not answer.degraded_reason
        found = {passage.chunk_id for passage, _ in answer.passages}
        assert chunk_id in found or not await has_lexemes(store, question), question
        assert chunk_id in {
            one.chunk_id for one in await store.by_keywords("churn " + question, VISIBLE, Scan.INDEX)
        }


async def has_lexemes(store: PostgresPassages, text: str) -> bool:
    async with store._pool.acquire() as conn:
        return bool(await conn.fetchval("SELECT length(to_tsvector('english', $1)) > 0", text))


async def test_with_many_matches_the_rare_words_choose_what_is_ranked(
    store: PostgresPassages, corpus: Corpus, search_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb_id = await corpus.add_base(OWNER)
    # Written first, so that a scan that stops early meets nothing else.
    await corpus.add_document(kb_id, *(Text(f"report {n}", None) for n in range(400)))
    [rare] = await corpus.add_document(kb_id, Text("report on porcupines, and much else besides", None))
    await search_pool.execute("ANALYZE chunks")
    monkeypatch.setattr("services.search.adapters.postgres.MATCHES_SOUGHT", 60)
    monkeypatch.setattr("services.search.adapters.postgres.MATCHES_RANKED", 100)

    assert rare in {
        found.chunk_id for found in await store.by_keywords("reports, porcupines", VISIBLE, Scan.INDEX)
    }
    assert len(await store.by_keywords("reports on xyzzy", VISIBLE, Scan.INDEX)) == CANDIDATES


async def test_only_live_chunks_are_seen(store: PostgresPassages, corpus: Corpus) -> None:
    kb_id = await corpus.add_base(OWNER)
    [old] = await corpus.add_document(kb_id, Text("churn, the live revision"))
    await corpus.add_document(kb_id, Text("churn, not yet live"), live=False)

    answer = await ask(store, "churn")

    assert [passage.chunk_id for passage, _ in answer.passages] == [old]
    for scan in Scan:
        assert [c.chunk_id for c in await store.by_keywords("churn", VISIBLE, scan)] == [old]
        assert [c.chunk_id for c in await store.by_vector(ALONG_FIRST_AXIS, SEARCHED, VISIBLE, scan)] == [old]


async def test_a_passage_carries_its_source(store: PostgresPassages, corpus: Corpus) -> None:
    kb_id = await corpus.add_base(OWNER)
    valid_until = datetime(2020, 1, 1, tzinfo=UTC)
    [chunk_id] = await corpus.add_document(
        kb_id,
        Text("Churn", (1, 0, 0, 0), Tier.ADVISORY_GUIDANCE, valid_until, page=3, headings=["A", "B"]),
        filename="plan.pdf",
        category="strategy",
    )

    [(passage, score)] = (await ask(store, "churn")).passages

    assert (passage.chunk_id, passage.kb_id, passage.filename) == (chunk_id, kb_id, "plan.pdf")
    assert (passage.category, passage.tier) == (Category.STRATEGY, Tier.ADVISORY_GUIDANCE)
    assert (passage.citation.page, passage.citation.headings) == (3, ("A", "B"))
    assert (passage.citation.char_start, passage.citation.char_end) == (0, 5)
    assert (score.relevance, score.freshness) == (1, 0.85)


class SwappedOnce(PostgresPassages):
    """Has a document take on a new revision just before its method `before` is called for the first time."""

    def __init__(self, pool: Pool, *, before: str, swap: Callable[[], Awaitable[None]]) -> None:
        super().__init__(pool)
        self.swapped = False
        called = getattr(super(), before)

        async def swap_and_call(*args: Any, **kwargs: Any) -> Any:
            if not self.swapped:
                self.swapped = True
                await swap()
            return await called(*args, **kwargs)

        setattr(self, before, swap_and_call)


async def test_a_swap_at_any_moment_shows_one_whole_revision(corpus: Corpus, search_pool: Pool) -> None:
    kb_id = await corpus.add_base(OWNER)
    pair = [Text("churn one", (1, 0.1, 0, 0)), Text("churn two", (1, 0.2, 0, 0))]
    live = await corpus.add_document(kb_id, *pair)
    document_id: UUID = await search_pool.fetchval("SELECT id FROM documents")

    for revision, moment in enumerate(("count_chunks", "by_keywords", "by_vector", "passages"), start=2):
        new = await corpus.add_revision(kb_id, document_id, revision, *pair, live=False)
        store = SwappedOnce(search_pool, before=moment, swap=partial(corpus.swap, live, new))

        answer = await ask(store, "churn")

        assert store.swapped
        assert {passage.chunk_id for passage, _ in answer.passages} == set(new), moment
        live = new


async def test_the_active_space_is_followed(store: PostgresPassages, corpus: Corpus, search_pool: Pool) -> None:
    assert await store.active_space() == SEARCHED

    await search_pool.execute("UPDATE embedding_spaces SET status = 'retired'")

    assert await store.active_space() == SEARCHED
    assert await store.active_space(cached=False) is None


async def test_a_space_that_is_gone_costs_the_vector_leg_only(
    store: PostgresPassages, corpus: Corpus, search_pool: Pool
) -> None:
    [chunk_id] = await corpus.add_document(await corpus.add_base(OWNER), Text("churn"))
    await search_pool.execute(f"DROP TABLE {SPACE.table}")

    for scan in Scan:
        with pytest.raises(VectorLegSkipped, match="space_gone"):
            await store.by_vector(ALONG_FIRST_AXIS, SEARCHED, VISIBLE, scan)
    answer = await ask(store, "churn")

    assert [passage.chunk_id for passage, _ in answer.passages] == [chunk_id]
    assert answer.degraded_reason.startswith("space_gone")
