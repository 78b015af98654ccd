"""No passage of a knowledge base that the caller cannot see, whoever owns what and whatever is asked for."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbmesh.errors import NotFound
from kbmesh.postgres import PostgresSettings, open_pool
from services.search import handlers
from services.search.adapters.postgres import SERVER_SETTINGS, PostgresPassages
from services.search.domain.filters import parse_filters
from services.search.domain.query import Mode, Query
from services.search.domain.retrieval import QueryVector, Scan, Space, Visibility
from tests.support.search import SPACE, Corpus, FakeEmbedder, Text

SEARCHED = Space(SPACE.id, SPACE.table, SPACE.dimensions)
ALONG_FIRST_AXIS = QueryVector((1.0, 0.0, 0.0, 0.0), SPACE.id)
USERS, TEAMS, BASES = range(3), range(2), range(5)

WORLDS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass(frozen=True)
class Base:
    team: bool
    owner: int
    chunks: int


bases = st.lists(
    st.one_of(
        st.builds(Base, st.just(False), st.sampled_from(USERS), st.integers(0, 3)),
        st.builds(Base, st.just(True), st.sampled_from(TEAMS), st.integers(0, 3)),
    ),
    max_size=len(BASES),
)
memberships = st.frozensets(st.sampled_from(TEAMS))
asked_for = st.none() | st.frozensets(st.sampled_from(BASES), min_size=1)


@pytest.fixture
async def corpus(postgres_settings: PostgresSettings) -> AsyncIterator[Corpus]:
    async with open_pool(postgres_settings, vectors=True, server_settings=SERVER_SETTINGS) as pool:
        corpus = Corpus(pool)
        await corpus.create_space()
        yield corpus


async def answered(
    store: PostgresPassages, visible: Visibility, mode: Mode, channel_id: str | None = None
) -> set[UUID]:
    answer = await handlers.kb_search(
        Query("churn", visible.kb_ids, 50, mode, channel_id=channel_id),
        visible,
        store=store,
        embedder=FakeEmbedder(),
        remaining_s=30,
        now=datetime.now(UTC),
    )
    return {passage.chunk_id for passage, _ in answer.passages}


async def found(store: PostgresPassages, visible: Visibility, mode: Mode = Mode.HYBRID) -> set[UUID]:
    """What a search gives, after a check that each leg alone gives the same."""
    by_leg = [
        *[await store.by_keywords("churn", visible, scan) for scan in Scan],
        *[await store.by_vector(ALONG_FIRST_AXIS, SEARCHED, visible, scan) for scan in Scan],
    ]
    passages = await answered(store, visible, mode)
    assert await store.count_chunks(visible, at_most=50) == len(passages)
    for leg in by_leg:
        assert {candidate.chunk_id for candidate in leg} == passages
    return passages


@WORLDS
@given(bases, memberships, asked_for)
async def test_a_search_gives_all_of_the_bases_that_are_visible_and_asked_for_and_nothing_else(
    corpus: Corpus, bases: list[Base], memberships: frozenset[int], asked_for: frozenset[int] | None
) -> None:
    users, teams = [uuid4() for _ in USERS], [uuid4() for _ in TEAMS]
    unknown = [uuid4() for _ in BASES]
    kb_ids: list[UUID] = []
    expected: set[UUID] = set()
    for index, base in enumerate(bases):
        owner = (teams if base.team else users)[base.owner]
        kb_ids.append(await corpus.add_base(owner, team=base.team))
        chunks = await corpus.add_document(kb_ids[-1], *[Text("churn")] * base.chunks)
        mine = base.owner in memberships if base.team else base.owner == 0
        if mine and (asked_for is None or index in asked_for):
            expected |= set(chunks)
    known_or_not = kb_ids + unknown
    asked_ids = None if asked_for is None else frozenset(known_or_not[index] for index in asked_for)
    visible = Visibility(users[0], frozenset(teams[index] for index in memberships), asked_ids)

    assert await found(PostgresPassages(corpus.pool), visible) == expected


@dataclass(frozen=True)
class Paper:
    base: int
    category: str
    year: int


@dataclass(frozen=True)
class Wanted:
    papers: frozenset[int]
    category: str
    years: tuple[int, int] | None


categories, years = st.sampled_from(["strategy", "other"]), st.integers(2024, 2026)
papers = st.lists(st.builds(Paper, st.sampled_from(BASES), categories, years), max_size=8)
wanted = st.builds(
    Wanted,
    st.frozensets(st.integers(0, 9), max_size=6),
    st.just("") | categories,
    st.none() | st.tuples(years, years),
)
channel_owners = st.none() | st.sampled_from(["mine", "a stranger's", 0, 1])


@settings(WORLDS, max_examples=20)
@given(bases, papers, memberships, asked_for, wanted, st.sampled_from(Mode), channel_owners, asked_for)
async def test_filters_modes_and_channels_take_away_from_what_is_visible_and_add_nothing(
    corpus: Corpus,
    bases: list[Base],
    papers: list[Paper],
    memberships: frozenset[int],
    asked_for: frozenset[int] | None,
    wanted: Wanted,
    mode: Mode,
    channel_owner: str | int | None,
    in_channel: frozenset[int] | None,
) -> None:
    users, teams = [uuid4() for _ in USERS], [uuid4() for _ in TEAMS]
    kb_ids = [await corpus.add_base((teams if base.team else users)[base.owner], team=base.team) for base in bases]
    mine = {n for n, base in enumerate(bases) if (base.owner in memberships if base.team else base.owner == 0)}
    unknown = [uuid4() for _ in BASES]
    ids_of = dict(enumerate(kb_ids)) | {n: unknown[n] for n in BASES if n >= len(kb_ids)}
    document_ids = [uuid4() for _ in range(10)]
    expected: set[UUID] = set()
    for number, paper in enumerate(papers):
        if paper.base >= len(kb_ids):
            continue
        chunks = await corpus.add_document(
            kb_ids[paper.base],
            Text("churn"),
            document_id=document_ids[number],
            category=paper.category,
            metadata={"year": paper.year},
        )
        if (
            paper.base in mine
            and (asked_for is None or paper.base in asked_for)
            and (channel_owner is None or paper.base in (in_channel or ()))
            and (not wanted.papers or number in wanted.papers)
            and wanted.category in ("", paper.category)
            and (wanted.years is None or wanted.years[0] <= paper.year <= wanted.years[1])
        ):
            expected |= set(chunks)
    channel_id = None if channel_owner is None else str(uuid4())
    if channel_id is not None:
        team = isinstance(channel_owner, int)
        owner = teams[channel_owner] if isinstance(channel_owner, int) else users[channel_owner != "mine"]
        await corpus.add_channel(owner, channel_id, *(ids_of[n] for n in in_channel or ()), team=team)
    filters = parse_filters(
        category=wanted.category,
        document_ids=[str(document_ids[number]) for number in wanted.papers],
        metadata={} if wanted.years is None else {"year": {"gte": wanted.years[0], "lte": wanted.years[1]}},
    )
    asked_ids = None if asked_for is None else frozenset(ids_of[n] for n in asked_for)
    visible = Visibility(users[0], frozenset(teams[n] for n in memberships), asked_ids, filters)
    store = PostgresPassages(corpus.pool)

    if channel_owner == "a stranger's" or (isinstance(channel_owner, int) and channel_owner not in memberships):
        with pytest.raises(NotFound):
            await answered(store, visible, mode, channel_id)
    else:
        assert await answered(store, visible, mode, channel_id) == expected
    if channel_id is None:
        assert await found(store, visible, mode) == expected


async def test_a_team_and_a_user_of_the_same_id_are_not_the_same_owner(corpus: Corpus) -> None:
    somebody, owner = uuid4(), uuid4()
    await corpus.add_document(await corpus.add_base(owner, team=True), Text("churn"))
    await corpus.add_document(await corpus.add_base(somebody), Text("churn"))
    store = PostgresPassages(corpus.pool)

    assert await found(store, Visibility(owner)) == set()
    assert await found(store, Visibility(uuid4(), frozenset({somebody}))) == set()


async def test_passages_are_read_for_those_alone_who_see_them(corpus: Corpus) -> None:
    owner = uuid4()
    kb_id, other_base = await corpus.add_base(owner), await corpus.add_base(owner)
    chunk_ids = await corpus.add_document(kb_id, Text("churn"))
    store = PostgresPassages(corpus.pool)

    assert len(await store.passages(chunk_ids, Visibility(owner))) == 1
    assert await store.passages(chunk_ids, Visibility(uuid4())) == []
    assert await store.passages(chunk_ids, Visibility(owner, kb_ids=frozenset({other_base}))) == []
