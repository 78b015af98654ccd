"""No passage of a knowledge base that the caller cannot see, whoever owns what and whatever is asked for."""

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
from services.search.domain.query import Query
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


async def found(store: PostgresPassages, visible: Visibility) -> set[UUID]:
    """What a search gives, after a check that each leg alone gives the same."""
    by_leg = [
        *[await store.by_keywords("churn", visible, scan) for scan in Scan],
        *[await store.by_vector(ALONG_FIRST_AXIS, SEARCHED, visible, scan) for scan in Scan],
    ]
    answer = await handlers.kb_search(
        Query("churn", visible.kb_ids, 50),
        visible,
        store=store,
        embedder=FakeEmbedder(),
        remaining_s=30,
        now=datetime.now(UTC),
    )
    passages = {passage.chunk_id for passage, _ in answer.passages}
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
