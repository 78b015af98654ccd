"""What the keyword leg finds, and what it takes to be worth more."""

import math
import re
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from kbmesh.postgres import Pool, PostgresSettings, open_pool
from kbmesh.postgres.migrate import MIGRATIONS
from services.search.adapters.postgres import SERVER_SETTINGS, PostgresPassages
from services.search.domain.retrieval import Scan, Visibility
from tests.support.search import Corpus, Text

OWNER = uuid4()
VISIBLE = Visibility(OWNER)
AVERAGE_LENGTH = 100
MIGRATION = MIGRATIONS / "20261130200000_bm25.sql"

FOUND_BY = {
    "The column cust_ltv_v2 is the lifetime value, second version.": ["cust_ltv_v2", "CUST_LTV_V2?", "v2"],
    "cust_ltv_v1 was the first version; cust is short for customer.": ["cust_ltv_v1"],
    "ORA-00942: table or view does not exist": ["ORA-00942", "ora 00942", "00942", "error (ORA-00942)"],
    "ORA-00904: invalid identifier": ["what is ORA-00904?"],
    "Stop code 0x80070005, HTTP 503, E1001 and error_code=quota_exceeded": [
        "0x80070005",
        "E1001",
        "quota_exceeded",
    ],
    "See s3://lake/exports/churn_2024.final.csv for the numbers": [
        "churn_2024.final.csv",
        "exports/churn_2024.final.csv",
        "churn_2024",
    ],
    "It was churn_2023.final.csv before that": ["churn_2023.final.csv"],
    "Query sales.orders.total through Map<OrderKey,Total>": ["sales.orders", "OrderKey"],
    "Release 10.4.1 was built on 2024-05-31": ["10.4.1", "2024-05-31"],
    "Release 10.4.2 was built on 2024-06-30": ["10.4.2", "2024-06-30"],
    "A well-known, customer-facing dashboard": ["customer-facing", "facing customers", "well known"],
    "They call it \u201cgoldplating\u201d \u2014 or over\u2011engineering\u2026": [
        "goldplating",
        "over-engineering",
    ],
    "K\u00fcndigungsfrist und H\u00e4user \u00fcber der Grenze": ["K\u00dcNDIGUNGSFRIST", "h\u00e4user"],
    "\u041e\u0442\u0442\u043e\u043a \u043a\u043b\u0438\u0435\u043d\u0442\u043e\u0432": [
        "\u043e\u0442\u0442\u043e\u043a"
    ],
    "The quarterly churn review, not the quarterly reviews of churning cream": ["quarterly churn review"],
}
"""A text, and questions for which it comes first."""


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


async def scores(store: PostgresPassages, question: str, scan: Scan = Scan.EXACT) -> dict[UUID, float]:
    """Best first."""
    return {one.chunk_id: one.similarity for one in await store.by_keywords(question, VISIBLE, scan)}


def idf(total: int, holding: int) -> float:
    return math.log(1 + (total - holding + 0.5) / (holding + 0.5))


def saturated(tf: int, length: int) -> float:
    return tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / AVERAGE_LENGTH))


@pytest.mark.parametrize("scan", Scan)
async def test_names_codes_files_and_words_of_other_languages_are_found(
    store: PostgresPassages, corpus: Corpus, scan: Scan
) -> None:
    kb_id = await corpus.add_base(OWNER)
    ids = await corpus.add_document(kb_id, *(Text(text, None) for text in FOUND_BY))

    for chunk_id, (text, questions) in zip(ids, FOUND_BY.items(), strict=True):
        for question in questions:
            found = await scores(store, question, scan)
            assert next(iter(found), None) == chunk_id, (question, text)


@pytest.mark.parametrize("scan", Scan)
async def test_the_score_is_bm25(store: PostgresPassages, corpus: Corpus, scan: Scan) -> None:
    kb_id = await corpus.add_base(OWNER)
    twice, longer, other = await corpus.add_document(
        kb_id,
        Text("churn churn margin", None),
        Text("churn " + "filler " * 200, None),
        Text("margin revenue", None),
    )

    found = await scores(store, "churn and margin", scan)

    assert found == pytest.approx(
        {
            twice: idf(3, 2) * (saturated(2, 3) + saturated(1, 3)),
            longer: idf(3, 2) * saturated(1, 201),
            other: idf(3, 2) * saturated(1, 2),
        },
        rel=1e-5,
    )


async def test_a_word_weighs_less_as_more_chunks_hold_it_and_more_when_they_go(
    store: PostgresPassages, corpus: Corpus, search_pool: Pool
) -> None:
    kb_id = await corpus.add_base(OWNER)
    [chunk_id] = await corpus.add_document(kb_id, Text("churn", None))
    alone = await scores(store, "churn")
    added = await corpus.add_document(kb_id, *[Text("churn margin", None)] * 3, Text("margin", None))

    assert (await scores(store, "churn"))[chunk_id] == pytest.approx(idf(5, 4) * saturated(1, 1), rel=1e-5)

    await search_pool.execute(
        "DELETE FROM documents WHERE id = (SELECT document_id FROM chunks WHERE id = $1)", added[0]
    )
    assert await scores(store, "churn") == alone


async def test_what_others_store_changes_no_score(
    store: PostgresPassages, corpus: Corpus, search_pool: Pool
) -> None:
    await corpus.add_document(await corpus.add_base(OWNER), Text("churn margin", None), Text("margin", None))
    before = {scan: await scores(store, "churn margin", scan) for scan in Scan}

    await corpus.add_document(await corpus.add_base(uuid4()), *[Text("churn", None)] * 20)

    assert before == {scan: await scores(store, "churn margin", scan) for scan in Scan}


async def test_common_words_weigh_what_the_statistics_say(
    store: PostgresPassages, corpus: Corpus, search_pool: Pool
) -> None:
    kb_id = await corpus.add_base(OWNER)
    await corpus.add_document(kb_id, *(Text(f"report number{n}", None) for n in range(99)))
    [rare] = await corpus.add_document(kb_id, Text("reporting porcupine", None))
    counted = await scores(store, "report porcupine")
    await search_pool.execute("ANALYZE chunks")

    found = await scores(store, "report porcupine")

    assert found == pytest.approx(counted, rel=1e-5)
    assert found[rare] == pytest.approx((idf(100, 100) + idf(100, 1)) * saturated(1, 2), rel=1e-5)


async def test_a_chunk_of_nothing_but_different_words_is_stored_and_found(
    store: PostgresPassages, corpus: Corpus
) -> None:
    kb_id = await corpus.add_base(OWNER)
    words = " ".join(f"{n:x}" for n in range(2_600))
    [all_words, nothing] = await corpus.add_document(kb_id, Text(words, None), Text("the, and: of!", None))

    found = await scores(store, "8fb")

    assert len(words) > 10_000
    assert list(found) == [all_words]
    assert nothing not in found


async def test_chunks_that_were_there_before_are_found_after_the_migration(
    store: PostgresPassages, corpus: Corpus, search_pool: Pool
) -> None:
    up, down = re.split(r"^-- migrate:down$", MIGRATION.read_text(), flags=re.MULTILINE)
    await search_pool.execute(down)
    [chunk_id] = await corpus.add_document(await corpus.add_base(OWNER), Text("ORA-00942", None))
    await search_pool.execute(up)
    await search_pool.expire_connections()

    for scan in Scan:
        assert list(await scores(store, "00942", scan)) == [chunk_id]
