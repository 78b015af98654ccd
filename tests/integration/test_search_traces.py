"""What somebody else has is looked for as what does not exist: by the same statements, so that no other or longer
path tells the two apart."""

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from kbmesh.errors import NotFound
from kbmesh.postgres import PostgresSettings, open_pool
from services.search import handlers
from services.search.adapters.postgres import SERVER_SETTINGS, PostgresPassages
from services.search.domain.context import Reach, parse_context_query
from services.search.domain.filters import Filters
from services.search.domain.query import Query
from services.search.domain.retrieval import Visibility
from tests.support.search import Corpus, FakeEmbedder, Text

ME, THEY = uuid4(), uuid4()


@pytest.fixture
async def corpus(postgres_settings: PostgresSettings) -> AsyncIterator[Corpus]:
    """On one connection, which is asked one statement after the other."""
    settings = postgres_settings.model_copy(update={"max_size": 1})
    async with open_pool(settings, vectors=True, server_settings=SERVER_SETTINGS) as pool:
        corpus = Corpus(pool)
        await corpus.create_space()
        await corpus.add_document(await corpus.add_base(ME), Text("churn"))
        # The first one asks for the types of columns, too.
        await statements_of(corpus, Visibility(ME))
        yield corpus


async def statements_of(corpus: Corpus, visible: Visibility, channel_id: str | None = None) -> list[str]:
    """What a search asks the database, in order but for what goes on at the same time."""
    said: list[Any] = []
    async with corpus.pool.acquire() as conn:
        conn.add_query_logger(said.append)
    asked = {"store": PostgresPassages(corpus.pool), "embedder": FakeEmbedder(), "remaining_s": 30}
    ask: Any = (
        partial(handlers.retrieve_context, parse_context_query("churn"))
        if isinstance(visible, Reach)
        else partial(handlers.kb_search, Query("churn", channel_id=channel_id))
    )
    with suppress(NotFound):
        await ask(visible, **asked, now=datetime.now(UTC))
    async with corpus.pool.acquire() as conn:
        conn.remove_query_logger(said.append)
    return sorted(one.query for one in said if one.args)


async def test_what_somebody_else_has_is_looked_for_as_what_does_not_exist(corpus: Corpus) -> None:
    base, document = await corpus.add_base(THEY), uuid4()
    await corpus.add_document(base, *[Text("churn")] * 20, document_id=document, metadata={"run_id": "7"})
    await corpus.add_channel(THEY, "slack:1", base)

    def bases(kb_id: UUID) -> Visibility:
        return Visibility(ME, kb_ids=frozenset({kb_id}))

    def documents(document_id: UUID) -> Visibility:
        return Visibility(ME, filters=Filters(document_ids=frozenset({document_id})))

    def runs(run_id: str) -> Reach:
        return Reach(ME, kinds=frozenset({"document_chunk"}), attributes={"run_id": run_id})

    for theirs, nobodys in (
        (bases(base), bases(uuid4())),
        (documents(document), documents(uuid4())),
        (runs("7"), runs("8")),
    ):
        found = await statements_of(corpus, theirs)
        assert found == await statements_of(corpus, nobodys)
        assert len(found) >= 4, found

    by_channel = [await statements_of(corpus, Visibility(ME), channel_id) for channel_id in ("slack:1", "slack:2")]
    assert by_channel[0] == by_channel[1]
    assert len(by_channel[0]) == 1
