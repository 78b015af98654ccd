"""No passage of a knowledge base that the caller cannot see, whoever owns what and whatever is asked for."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
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
    store: PostgresPassages, visible: Visibility, mode: Mode = Mode.HYBRID, channel_id: str | None = None
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


def texts(count: int) -> list[Text]:
    """About churn, and none the same as another, so that all are answered."""
    return [Text(f"churn {uuid4().hex}") for _ in range(count)]


async def found(store: PostgresPassages, visible: Visibility) -> set[UUID]:
    """What a search gives, after a check that each leg alone gives the same."""
    by_leg = [
        *[await store.by_keywords("churn", visible, scan) for scan in Scan],
        *[await store.by_vector(ALONG_FIRST_AXIS, SEARCHED, visible, scan) for scan in Scan],
    ]
    passages = await answered(store, visible)
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
        chunks = await corpus.add_document(kb_ids[-1], *texts(base.chunks))
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
    document_id: UUID
    chunk_id: UUID


@dataclass(frozen=True)
class Library:
    """Of each owner a base, of each base a paper for every category and year."""

    corpus: Corpus
    owners: dict[str, UUID]
    kb_ids: list[UUID]
    papers: list[Paper]


OWNERS = ["me", "me again", "team 0", "team 1", "a stranger"]
CATEGORIES, YEARS = ["strategy", "other"], range(2024, 2027)


@pytest.fixture
async def library(corpus: Corpus) -> Library:
    me = uuid4()
    owners = {name: uuid4() for name in OWNERS} | {"me": me, "me again": me}
    kb_ids = [await corpus.add_base(owners[name], team=name.startswith("team")) for name in OWNERS]
    papers = []
    for base, category, year in product(BASES, CATEGORIES, YEARS):
        document_id = uuid4()
        [chunk_id] = await corpus.add_document(
            kb_ids[base], *texts(1), document_id=document_id, category=category, metadata={"year": year}
        )
        papers.append(Paper(base, category, year, document_id, chunk_id))
    return Library(corpus, owners, kb_ids, papers)


numbers = st.integers(0, len(OWNERS) * len(CATEGORIES) * len(YEARS))
no_papers: frozenset[int] = frozenset()
papers = st.just(no_papers) | st.frozensets(numbers, min_size=5)
channels = st.none() | st.tuples(st.sampled_from(OWNERS), st.frozensets(st.sampled_from(range(len(BASES) + 1))))


@settings(WORLDS, max_examples=40)
@given(
    memberships,
    asked_for,
    st.sampled_from(Mode),
    st.sampled_from(["", *CATEGORIES]),
    st.none() | st.tuples(st.sampled_from(YEARS), st.sampled_from(YEARS)).map(sorted),
    papers,
    channels,
)
async def test_filters_modes_and_channels_take_away_from_what_is_visible_and_add_nothing(
    library: Library,
    memberships: frozenset[int],
    asked_for: frozenset[int] | None,
    mode: Mode,
    category: str,
    years: list[int] | None,
    picked: frozenset[int],
    channel: tuple[str, frozenset[int]] | None,
) -> None:
    known_or_not = [*library.kb_ids, uuid4()]
    document_ids = [*(paper.document_id for paper in library.papers), uuid4()]
    seen = {"me", "me again", *(f"team {number}" for number in memberships)}
    expected = {
        paper.chunk_id
        for number, paper in enumerate(library.papers)
        if OWNERS[paper.base] in seen
        and (asked_for is None or paper.base in asked_for)
        and (channel is None or paper.base in channel[1])
        and category in ("", paper.category)
        and (years is None or years[0] <= paper.year <= years[1])
        and (not picked or number in picked)
    }
    channel_id = None
    if channel is not None:
        channel_id = str(uuid4())
        owner, bases = channel
        await library.corpus.add_channel(
            library.owners[owner], channel_id, *(known_or_not[n] for n in bases), team=owner.startswith("team")
        )
    filters = parse_filters(
        category=category,
        document_ids=[str(document_ids[number]) for number in picked],
        metadata={} if years is None else {"year": {"gte": years[0], "lte": years[1]}},
    )
    visible = Visibility(
        library.owners["me"],
        frozenset(library.owners[f"team {number}"] for number in memberships),
        None if asked_for is None else frozenset(known_or_not[n] for n in asked_for),
        filters,
    )
    store = PostgresPassages(library.corpus.pool)

    if channel is not None and channel[0] not in seen:
        with pytest.raises(NotFound):
            await answered(store, visible, mode, channel_id)
    else:
        assert await answered(store, visible, mode, channel_id) == expected
    if channel is None:
        assert await found(store, visible) == expected


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
