"""What KbSearch can be asked for, by those who mean well and by those who do not."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import grpc
import pytest
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from kbmesh.postgres import Pool, PostgresSettings
from kbmesh.provenance import Tier
from kbmesh.search.v1 import search_pb2, search_pb2_grpc
from tests.support.search import Corpus, Text
from tests.support.search_service import ANN, Client, EmbeddingStub, reason_of, running_search, token

ODD_TEXTS = [
    "'; DROP TABLE chunks; --",
    '" OR ""="',
    "%s {0} {} $1 :name ${x}",
    "$ ? (@ == 1) \\ \\' /* narrowed chunks */",
    "\u202eright to left 🦔\u200b",
]
NUL = "a\x00b"
BAD = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
async def corpus(pool: Pool) -> Corpus:
    corpus = Corpus(pool)
    await corpus.create_space()
    return corpus


@pytest.fixture
async def client(postgres_settings: PostgresSettings) -> AsyncIterator[Client]:
    async with running_search(postgres_settings, EmbeddingStub()) as client:
        yield client


def noted(**metadata: Any) -> Struct:
    struct = Struct()
    struct.update(metadata)
    return struct


def files_of(response: search_pb2.KbSearchResponse) -> list[str]:
    return [passage.filename for passage in response.passages]


async def test_filters_narrow_and_a_least_score_cuts(client: Client, corpus: Corpus) -> None:
    kb_id = await corpus.add_base(ANN)
    await corpus.add_document(
        kb_id,
        Text("churn", tier=Tier.ADVISORY_GUIDANCE),
        filename="plan",
        category="strategy",
        metadata={"owner": "Finance", "year": 2026},
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    await corpus.add_document(kb_id, Text("our churn"), filename="note", metadata={"owner": "Sales", "year": 2024})
    moment = Timestamp(seconds=int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()))

    for filters in (
        {"category": "strategy"},
        {"metadata": noted(owner="Finance")},
        {"metadata": noted(owner="Finance", year={"gte": 2025, "lte": 2026})},
        {"created_after": moment, "created_before": Timestamp(seconds=moment.seconds + 1)},
    ):
        assert files_of(await client.search(filters=search_pb2.Filters(**filters))) == ["plan"], filters
    assert files_of(await client.search(filters=search_pb2.Filters(metadata=noted(owner="Nobody")))) == []
    assert files_of(await client.search()) == ["note", "plan"]
    assert files_of(await client.search(min_score=0.9)) == ["note"]


async def test_an_explanation_is_given_when_asked_for(client: Client, corpus: Corpus) -> None:
    kb_id = await corpus.add_base(ANN)
    await corpus.add_document(kb_id, Text("churn", (1, 0, 0, 0)), filename="both")
    await corpus.add_document(kb_id, Text("loss", (0.6, 0.8, 0, 0)), filename="one")

    plain, explained = await client.search(), await client.search(explain=True)

    assert not any(passage.HasField("explanation") for passage in plain.passages)
    both, one = (passage.explanation for passage in explained.passages)
    assert files_of(explained) == ["both", "one"]
    assert (both.rank, one.rank) == (1, 2)
    assert (both.vector_similarity, one.vector_similarity) == pytest.approx((1, 0.6))
    assert both.keyword_similarity > 0
    assert not one.HasField("keyword_similarity")
    for passage in explained.passages:
        passage.ClearField("explanation")
    assert explained == plain


async def test_a_mode_asks_one_leg_alone(client: Client, corpus: Corpus) -> None:
    kb_id = await corpus.add_base(ANN)
    await corpus.add_document(kb_id, Text("loss"), filename="meant")
    await corpus.add_document(kb_id, Text("churn", (-1, 0, 0, 0)), filename="said")

    assert set(files_of(await client.search(mode=search_pb2.MODE_HYBRID))) == {"meant", "said"}
    assert files_of(await client.search(mode=search_pb2.MODE_VECTOR)) == ["meant"]
    assert files_of(await client.search(mode=search_pb2.MODE_KEYWORD)) == ["said"]


async def test_without_an_embedder_a_mode_gets_what_it_asks_for_or_an_outage(
    postgres_settings: PostgresSettings, corpus: Corpus
) -> None:
    await corpus.add_document(await corpus.add_base(ANN), Text("churn"))

    async with running_search(postgres_settings, EmbeddingStub(), embedding_up=False) as client:
        by_keyword = await client.search(mode=search_pb2.MODE_KEYWORD)
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await client.search(mode=search_pb2.MODE_VECTOR)

    assert (len(by_keyword.passages), by_keyword.degraded) == (1, False)
    assert failure.value.code() == grpc.StatusCode.UNAVAILABLE
    assert reason_of(failure) == "EMBEDDING_UNAVAILABLE"


async def test_a_channel_is_looked_up_among_those_of_the_caller(client: Client, corpus: Corpus) -> None:
    team, stranger = uuid4(), uuid4()
    bases = [await corpus.add_base(ANN), await corpus.add_base(team, team=True), await corpus.add_base(stranger)]
    for name, kb_id in zip(("mine", "ours", "theirs"), bases, strict=True):
        await corpus.add_document(kb_id, Text("churn"), filename=name)
    await corpus.add_channel(ANN, "slack:1", bases[0], bases[2], uuid4())
    await corpus.add_channel(team, "slack:2", bases[1], team=True)
    await corpus.add_channel(stranger, "slack:3", *bases)
    await corpus.add_channel(ANN, "slack:4")

    assert files_of(await client.search(channel_id="slack:1")) == ["mine"]
    assert files_of(await client.search(channel_id="slack:1", kb_ids=[str(bases[1])])) == []
    assert files_of(await client.search(channel_id="slack:4")) == []
    refused = []
    for channel_id in ("slack:2", "slack:3", "slack:5"):
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await client.search(channel_id=channel_id, roles=["admin"])
        refused.append((failure.value.code(), failure.value.details(), reason_of(failure)))
    assert refused == [(grpc.StatusCode.NOT_FOUND, "no such channel", "CHANNEL_NOT_FOUND")] * 3
    stub = search_pb2_grpc.SearchServiceStub(client.channel)
    request = search_pb2.KbSearchRequest(query="churn", channel_id="slack:2")
    assert files_of(await stub.KbSearch(request, metadata=token(ANN, teams=[str(team)]), timeout=20)) == ["ours"]


async def test_whatever_stands_in_a_field_is_a_value_or_refused_with_a_code(
    client: Client, corpus: Corpus
) -> None:
    await corpus.add_document(await corpus.add_base(ANN), Text("churn"))
    refused: list[tuple[dict[str, Any], str]] = [
        ({"query": "a" * 1_000_000}, "QUERY_TOO_LONG"),
        ({"kb_ids": [str(uuid4())] * 10_000}, "TOO_MANY_KB_IDS"),
        ({"limit": 10**9}, "LIMIT_OUT_OF_RANGE"),
        ({"expand": 4}, "EXPAND_OUT_OF_RANGE"),
        ({"expand": -1}, "EXPAND_OUT_OF_RANGE"),
        ({"mode": 99}, "UNKNOWN_MODE"),
        ({"mode": -1}, "UNKNOWN_MODE"),
        ({"min_score": float("nan")}, "MIN_SCORE_OUT_OF_RANGE"),
        ({"min_score": -1}, "MIN_SCORE_OUT_OF_RANGE"),
        ({"channel_id": "c" * 1_000_000}, "INVALID_CHANNEL_ID"),
        ({"channel_id": NUL}, "INVALID_CHANNEL_ID"),
    ]
    bad_filters: list[dict[str, Any]] = [
        {"category": NUL},
        {"document_ids": [str(uuid4())] * 10_000},
        {"document_ids": ["00000000-0000-0000-0000-00000000000g"]},
        {"content_type": NUL},
        {"content_type": "c" * 1_000_000},
        {"metadata": noted(**{str(n): n for n in range(10_000)})},
        {"metadata": noted(a="b" * 1_000_000)},
        {"metadata": noted(a=NUL)},
        {"metadata": noted(**{NUL: 1})},
        {"metadata": noted(a=float("nan"))},
        {"metadata": noted(a={"gte": float("inf")})},
        {"metadata": noted(a={"gte": 1, "lte": "2"})},
        {"metadata": noted(a={"$where": "1"})},
        {"metadata": noted(a=[[["deep"]]])},
        {"created_after": Timestamp(seconds=2**62)},
        {"created_before": Timestamp(seconds=-(2**62))},
    ]
    for text in ODD_TEXTS:
        refused += [({"kb_ids": [text]}, "INVALID_KB_ID")]
        bad_filters += [{"category": text}, {"document_ids": [text]}]
    refused += [({"filters": search_pb2.Filters(**filters)}, "INVALID_FILTER") for filters in bad_filters]
    for fields, code in refused:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await client.search(**fields)
        assert (failure.value.code(), reason_of(failure)) == (BAD, code), str(fields)[:200]
        assert len(failure.value.details() or "") < 300

    for text in ODD_TEXTS:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await client.search(channel_id=text)
        assert reason_of(failure) == "CHANNEL_NOT_FOUND"
        for filters in (
            {"content_type": text},
            {"metadata": noted(**{text: text})},
            {"metadata": noted(a=[text])},
            {"metadata": noted(**{text: {"gte": text, "lte": text}})},
        ):
            assert not (await client.search(text, filters=search_pb2.Filters(**filters))).passages

    assert len((await client.search(limit=50)).passages) == 1


async def test_deadlines_in_the_past_and_bytes_that_are_no_request_are_no_accidents(client: Client) -> None:
    stub = search_pb2_grpc.SearchServiceStub(client.channel)
    for deadline_s in (0, -1, -(10**9)):
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await stub.KbSearch(search_pb2.KbSearchRequest(query="x"), metadata=token(ANN), timeout=deadline_s)
        assert failure.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED

    call: Any = client.channel.unary_unary("/kbmesh.search.v1.SearchService/KbSearch")
    for sent in (b"\xff" * 10, b"\x0a\x02\xc3\x28"):
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await call(sent, metadata=token(ANN), timeout=5)
        assert (failure.value.code(), reason_of(failure)) == (BAD, "BAD_REQUEST")
