"""RetrieveContext as its clients see it."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest
from google.protobuf import struct_pb2

from kbmesh.common.v1 import tier_pb2
from kbmesh.postgres import Pool, PostgresSettings
from kbmesh.provenance import Tier
from kbmesh.search.v1 import context_pb2, search_pb2_grpc
from tests.support.search import Corpus, Text
from tests.support.search_service import ANN, Client, EmbeddingStub, reason_of, running_search, token


@pytest.fixture
async def corpus(pool: Pool) -> Corpus:
    corpus = Corpus(pool)
    await corpus.create_space()
    return corpus


@pytest.fixture
async def client(postgres_settings: PostgresSettings) -> AsyncIterator[Client]:
    async with running_search(postgres_settings, EmbeddingStub()) as client:
        yield client


async def retrieve(
    client: Client, query: str = "churn", *, caller: UUID = ANN, **fields: Any
) -> context_pb2.RetrieveContextResponse:
    stub = search_pb2_grpc.SearchServiceStub(client.channel)
    request = context_pb2.RetrieveContextRequest(query=query, **fields)
    return await stub.RetrieveContext(request, metadata=token(caller), timeout=20)


async def test_context_comes_with_provenance_and_as_a_text(corpus: Corpus, client: Client) -> None:
    kb_id = await corpus.add_base(ANN)
    [chunk] = await corpus.add_document(
        kb_id, Text("Churn is 2 percent.", page=4, headings=["A"]), filename="a.pdf"
    )
    [record] = await corpus.add_record(
        "industry_benchmark",
        Text("Churn elsewhere is 5 percent.", (0.9, 0.3, 0, 0), Tier.INDUSTRY_BENCHMARK),
        title="Churn of banks",
        attributes={"run_id": "r1", "year": 2026},
    )

    both = await retrieve(client)
    filtered = await retrieve(client, run_id="r1", metadata_filter={"year": 2026})
    alone = await retrieve(client, scopes=["documents"], kinds=["use_case"], top_k=1)
    stranger = await retrieve(client, caller=uuid4(), enforce_source_priority=False)

    first, second = both.passages
    assert (first.chunk_id, first.kind, first.title, first.kb_id) == (
        str(chunk),
        "document_chunk",
        "a.pdf",
        str(kb_id),
    )
    assert (first.label, first.tier) == ("[UPLOADED DOCUMENT: a.pdf]", tier_pb2.TIER_CUSTOMER_FACT)
    assert (first.page, list(first.headings), first.score) == (4, ["A"], 1)
    assert (second.chunk_id, second.kind, second.title) == (str(record), "industry_benchmark", "Churn of banks")
    assert (second.kb_id, second.source_id, second.HasField("page")) == ("", str(record), False)
    assert "IndustryBenchmark 0.70" in second.reason
    assert both.formatted.endswith(
        "[INDUSTRY BENCHMARK] IndustryBenchmark, differs from passage 1: Churn of banks\n"
        "| Churn elsewhere is 5 percent."
    )
    assert (list(first.conflicts_with), list(second.conflicts_with)) == ([str(record)], [str(chunk)])
    assert (both.dropped, both.shortened, both.degraded) == (0, False, False)
    assert [passage.chunk_id for passage in filtered.passages] == [str(record)]
    assert [passage.chunk_id for passage in alone.passages] == [str(chunk)]
    assert [(passage.chunk_id, passage.score) for passage in stranger.passages] == [(str(record), 1)]


def _struct(**values: struct_pb2.Value) -> struct_pb2.Struct:
    return struct_pb2.Struct(fields=values)


async def test_bad_input_is_refused_with_a_code(corpus: Corpus, client: Client) -> None:
    for fields, code in (
        ({"query": ""}, "EMPTY_QUERY"),
        ({"query": "a" * 4_001}, "QUERY_TOO_LONG"),
        ({"top_k": 0}, "LIMIT_OUT_OF_RANGE"),
        ({"top_k": 2**31 - 1}, "LIMIT_OUT_OF_RANGE"),
        ({"min_score": 1.5}, "MIN_SCORE_OUT_OF_RANGE"),
        ({"min_score": float("nan")}, "MIN_SCORE_OUT_OF_RANGE"),
        ({"max_chars": 0}, "MAX_CHARS_OUT_OF_RANGE"),
        ({"scopes": ["gossip"]}, "UNKNOWN_SCOPE"),
        ({"kinds": ["gossip' OR true --"]}, "UNKNOWN_KIND"),
        ({"run_id": "\x00"}, "INVALID_METADATA_FILTER"),
        ({"metadata_filter": {"a": None}}, "INVALID_METADATA_FILTER"),
        ({"metadata_filter": {"a": [1]}}, "INVALID_METADATA_FILTER"),
        ({"metadata_filter": {"a": {"b": 1}}}, "INVALID_METADATA_FILTER"),
        ({"metadata_filter": _struct(a=struct_pb2.Value())}, "INVALID_METADATA_FILTER"),
        ({"metadata_filter": _struct(a=struct_pb2.Value(number_value=float("inf")))}, "INVALID_METADATA_FILTER"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await retrieve(client, **fields)

        assert failure.value.code() == grpc.StatusCode.INVALID_ARGUMENT, fields
        assert reason_of(failure) == code, fields
    assert await retrieve(client, min_score=0, max_chars=2_000) == context_pb2.RetrieveContextResponse()


async def test_without_a_token_nothing_is_answered(client: Client) -> None:
    stub = search_pb2_grpc.SearchServiceStub(client.channel)
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await stub.RetrieveContext(context_pb2.RetrieveContextRequest(query="churn"), timeout=5)

    assert failure.value.code() == grpc.StatusCode.UNAUTHENTICATED
