"""The JSON routes of search, over the real search service and over one that fails in every way."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import httpx
import pytest

from kbmesh import errors
from kbmesh.auth import Authenticator
from kbmesh.messaging import Topics
from kbmesh.postgres import Pool, PostgresSettings
from kbmesh.provenance import Tier
from kbmesh.rpc import ChannelSettings, GrpcSettings, open_channel, serve
from kbmesh.search.v1 import assemble_pb2, context_pb2, search_pb2, search_pb2_grpc
from services.ingest.adapters.search import GrpcSearch
from tests.support.gateway import client_of, make_gateway
from tests.support.search import Corpus, Text
from tests.support.search_service import ANN, AUTH, NOWHERE, EmbeddingStub, running_search, token


@pytest.fixture
async def corpus(pool: Pool) -> Corpus:
    corpus = Corpus(pool)
    await corpus.create_space()
    return corpus


@asynccontextmanager
async def gateway(pool: Pool, path: Path, channel: grpc.aio.Channel | None) -> AsyncIterator[httpx.AsyncClient]:
    search = None if channel is None else GrpcSearch(channel, timeout_s=5)
    made = replace(make_gateway(pool, path, Topics("kbmesh")), authenticator=Authenticator(AUTH), search=search)
    async with client_of(made) as client:
        client.headers.update(dict(token(ANN)))
        yield client


@pytest.fixture
async def http(
    pool: Pool, postgres_settings: PostgresSettings, tmp_path: Path
) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        running_search(postgres_settings, EmbeddingStub()) as running,
        gateway(pool, tmp_path, running.channel) as client,
    ):
        yield client


class FailingSearch(search_pb2_grpc.SearchServiceServicer):
    def __init__(self) -> None:
        self.failure: Exception = errors.Unavailable("down")
        self.metadata: dict[str, Any] = {}

    async def KbSearch(self, request: Any, context: Any) -> search_pb2.KbSearchResponse:
        self.metadata = dict(context.invocation_metadata())
        raise self.failure

    async def RetrieveContext(self, request: Any, context: Any) -> context_pb2.RetrieveContextResponse:
        raise self.failure

    async def AssembleContext(self, request: Any, context: Any) -> assemble_pb2.AssembleContextResponse:
        raise self.failure

    def StreamSearch(self, request_iterator: Any, context: Any) -> Any:
        raise self.failure


async def test_a_search_answers_with_provenance_and_place(http: httpx.AsyncClient, corpus: Corpus) -> None:
    kb = await corpus.add_base(ANN)
    [chunk] = await corpus.add_document(
        kb, Text("Churn is 2 percent.", page=4, headings=["Metrics"]), filename="a.pdf", category="strategy"
    )

    answer = await http.post("/search", json={"query": "churn", "kb_ids": [str(kb)], "limit": 3})

    assert answer.status_code == 200, answer.text
    [passage] = answer.json()["passages"]
    assert (passage["chunk_id"], passage["kb_id"]) == (str(chunk), str(kb))
    assert (passage["label"], passage["category"]) == ("[UPLOADED DOCUMENT: a.pdf]", "strategy")
    assert (passage["content"], passage["tier"]) == ("Churn is 2 percent.", "CustomerFact")
    assert (passage["citation"]["page"], passage["citation"]["headings"]) == (4, ["Metrics"])
    assert passage["score"]["value"] == passage["score"]["relevance"] == 1
    assert (passage["score"]["vector_rank"], passage["score"]["keyword_rank"]) == (1, 1)
    assert (passage["duplicates"], passage["conflicts_with"]) == ([], [])
    assert (answer.json()["degraded"], answer.json()["degraded_reason"]) == (False, "")


async def test_what_an_answer_says_once_or_in_two_ways_is_told(http: httpx.AsyncClient, corpus: Corpus) -> None:
    kb = await corpus.add_base(ANN)
    own = [Text("Our churn is 2 percent."), Text("Counted monthly.", (0, 1, 0, 0), start=24)]
    fact, _ = await corpus.add_document(kb, *own)
    [copy] = await corpus.add_document(kb, Text("Our  churn is 2 percent.", (0.9, 0.1, 0, 0)))
    [other] = await corpus.add_document(
        kb, Text("Elsewhere churn is 5 percent.", (0.8, 0.2, 0, 0), Tier.INDUSTRY_BENCHMARK)
    )

    answer = await http.post("/search", json={"query": "churn", "expand": 1})
    context = await http.post("/context/retrieve", json={"query": "churn"})

    assert (answer.status_code, context.status_code) == (200, 200), (answer.text, context.text)
    passage = answer.json()["passages"][0]
    assert (passage["chunk_id"], passage["content"]) == (str(fact), "Our churn is 2 percent. Counted monthly.")
    for door in (answer, context):
        first, second = door.json()["passages"]
        assert (first["duplicates"], first["conflicts_with"]) == ([str(copy)], [str(other)])
        assert (second["duplicates"], second["conflicts_with"]) == ([], [str(fact)])


async def test_everything_that_search_takes_is_passed_on(http: httpx.AsyncClient, corpus: Corpus) -> None:
    mine, other = await corpus.add_base(ANN), await corpus.add_base(ANN)
    moment, document = datetime(2026, 1, 1, tzinfo=UTC), uuid4()
    await corpus.add_document(
        mine,
        Text("churn"),
        document_id=document,
        filename="wanted",
        category="strategy",
        content_type="application/pdf",
        metadata={"owner": "Finance", "year": 2026, "audited": True},
        created_at=moment,
    )
    await corpus.add_document(mine, Text("churn again", (0.6, 0.8, 0, 0)), filename="second")
    await corpus.add_document(other, Text("churn elsewhere"), filename="elsewhere")
    await corpus.add_channel(ANN, "slack:1", mine)

    async def files(path: str = "/search", **fields: Any) -> list[str]:
        answer = await http.post(path, json={"query": "churn", "channel_id": "slack:1"} | fields)
        assert answer.status_code == 200, answer.text
        return [
            passage.get("filename") or passage["citation"]["filename"] for passage in answer.json()["passages"]
        ]

    assert await files() == ["wanted", "second"]
    assert await files("/tools/kb_search") == ["wanted", "second"]
    assert await files(min_score=0.9) == ["wanted"]
    assert await files(kb_ids=[str(other)]) == []
    for filters in (
        {"category": "strategy"},
        {"document_ids": [str(document)]},
        {"content_type": "application/pdf"},
        {"metadata": {"owner": "Finance", "year": 2026, "audited": True}},
        {"metadata": {"year": {"gte": 2025}}},
        {"created_after": "2026-01-01T00:00:00Z", "created_before": "2026-01-01T01:00:01+01:00"},
    ):
        assert await files(filters=filters) == await files("/tools/kb_search", filters=filters) == ["wanted"], (
            filters
        )
    for mode, leg in (("vector", "keyword_similarity"), ("keyword", "vector_similarity")):
        answer = await http.post("/search", json={"query": "churn", "mode": mode, "explain": True, "limit": 1})
        [passage] = answer.json()["passages"]
        assert (passage["explanation"]["rank"], passage["explanation"][leg]) == (1, None)
    assert (await http.post("/search", json={"query": "churn"})).json()["passages"][0]["explanation"] is None


async def test_the_tool_answers_with_what_a_model_needs(http: httpx.AsyncClient, corpus: Corpus) -> None:
    kb = await corpus.add_base(ANN)
    for number in range(7):
        await corpus.add_document(kb, Text(f"Churn {number}"), filename=f"{number}.txt")

    answer = (await http.post("/tools/kb_search", json={"query": "churn"})).json()

    assert len(answer["passages"]) == 5
    first = answer["passages"][0]
    assert set(first) == {"label", "tier", "content", "citation", "score", "differs_from"}
    assert first["label"] == f"[UPLOADED DOCUMENT: {first['citation']['filename']}]"
    assert f"1. {first['label']}, CustomerFact, score" in answer["text"]
    assert f"> {first['content']}" in answer["text"]
    assert 0 < first["score"] <= 1


async def test_the_schema_of_the_tool_is_that_of_its_route(http: httpx.AsyncClient) -> None:
    tool = (await http.get("/tools/kb_search")).json()

    parameters = tool["openai"]["function"]["parameters"]
    assert tool["openai"]["type"] == "function"
    assert tool["name"] == tool["openai"]["function"]["name"] == "kb_search"
    assert parameters == tool["input_schema"]
    assert set(parameters["properties"]) == {
        "query",
        "kb_ids",
        "limit",
        "channel_id",
        "mode",
        "filters",
        "expand",
        "min_score",
    }
    assert (parameters["required"], parameters["properties"]["limit"]["default"]) == (["query"], 5)


@pytest.mark.parametrize("path", ["/search", "/tools/kb_search"])
async def test_the_knowledge_bases_of_others_give_nothing(
    http: httpx.AsyncClient, corpus: Corpus, path: str
) -> None:
    theirs = await corpus.add_base(uuid4())
    await corpus.add_document(theirs, Text("churn"))

    for kb_ids in ([], [str(theirs)], [str(uuid4())]):
        answer = await http.post(path, json={"query": "churn", "kb_ids": kb_ids})
        assert (answer.status_code, answer.json()["passages"]) == (200, [])
    assert (await http.post(path, json={"query": "churn"}, headers={"Authorization": ""})).status_code == 401


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"query": " \t"}, 400, "empty_query"),
        ({"query": ""}, 422, "invalid_request"),
        ({"query": "x" * 4001}, 422, "invalid_request"),
        ({"query": "x", "limit": 51}, 422, "invalid_request"),
        ({"query": "x", "kb_ids": ["nobody"]}, 422, "invalid_request"),
        ({"query": "x", "surprise": 1}, 422, "invalid_request"),
    ],
)
async def test_a_bad_question_is_told_what_is_wrong(
    http: httpx.AsyncClient, body: dict[str, object], status: int, code: str
) -> None:
    answer = await http.post("/search", json=body)

    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_what_cannot_be_looked_for_is_told_as_such(http: httpx.AsyncClient) -> None:
    bad: list[tuple[dict[str, Any], int, str]] = [
        ({"channel_id": "slack:1"}, 404, "channel_not_found"),
        ({"channel_id": ""}, 422, "invalid_request"),
        ({"mode": "best"}, 422, "invalid_request"),
        ({"min_score": float("nan")}, 422, "invalid_request"),
        ({"filters": {"category": "best"}}, 422, "invalid_request"),
        ({"filters": {"document_ids": [str(ANN)] * 101}}, 422, "invalid_request"),
        ({"filters": {"content_type": "\x00"}}, 400, "invalid_filter"),
        ({"filters": {"metadata": {"a": float("nan")}}}, 422, "invalid_request"),
        ({"filters": {"metadata": {"a": 10**400}}}, 422, "invalid_request"),
        ({"filters": {"metadata": {"a": {"gt": 1}}}}, 422, "invalid_request"),
        ({"filters": {"metadata": {"\ud800": "\ud800"}}}, 422, "invalid_request"),
        ({"filters": {"metadata": {"a": "\x00"}}}, 400, "invalid_filter"),
        ({"filters": {"metadata": {"a": {}}}}, 400, "invalid_filter"),
        ({"filters": {"created_after": "0001-01-01T00:00:00+01:00"}}, 400, "invalid_filter"),
    ]
    for fields, status, code in bad:
        for path in ("/search", "/tools/kb_search"):
            body = json.dumps({"query": "x"} | fields)
            answer = await http.post(path, content=body, headers={"content-type": "application/json"})
            assert (answer.status_code, answer.json()["code"]) == (status, code), fields


async def test_context_is_retrieved_as_json(http: httpx.AsyncClient, corpus: Corpus) -> None:
    kb = await corpus.add_base(ANN)
    [document] = await corpus.add_document(kb, Text("Churn is 2 percent.", page=4), filename="a.pdf")
    [record] = await corpus.add_record(
        "use_case",
        Text("Lower churn.", (0.9, 0.3, 0, 0)),
        title="Churn",
        attributes={"run_id": "r1", "year": 2026},
    )

    both = await http.post("/context/retrieve", json={"query": "churn"})
    asked = {
        "query": "churn",
        "kinds": ["use_case"],
        "run_id": "r1",
        "metadata_filter": {"year": 2026},
        "top_k": 1,
    }
    filtered = await http.post("/context/retrieve", json=asked)

    assert both.status_code == 200, both.text
    first, second = both.json()["passages"]
    assert (first["chunk_id"], first["kb_id"], first["page"]) == (str(document), str(kb), 4)
    assert (first["label"], first["tier"]) == ("[UPLOADED DOCUMENT: a.pdf]", "CustomerFact")
    assert (second["chunk_id"], second["kb_id"], second["page"]) == (str(record), "", None)
    assert both.json()["formatted"].endswith("| Lower churn.")
    assert (both.json()["dropped"], both.json()["degraded"]) == (0, False)
    assert [passage["chunk_id"] for passage in filtered.json()["passages"]] == [str(record)]


async def test_context_is_assembled_as_json(http: httpx.AsyncClient, corpus: Corpus) -> None:
    [record] = await corpus.add_record("business_context", Text("A bank that fears churn."), title="Bank")

    answer = await http.post(
        "/context/assemble",
        json={"question": "churn", "intent": "business", "persona": "cfo", "budgets": {"max_direct_chars": 900}},
    )

    assert answer.status_code == 200, answer.text
    assembled = answer.json()
    assert [(section["strategy"], section["name"]) for section in assembled["sections"]] == [
        ("direct", "business_context")
    ]
    assert assembled["formatted"].endswith("Bank\n| A bank that fears churn.")
    first, second = assembled["receipt"]["entries"]
    assert (first["chunk_id"], first["outcome"], first["score"]) == (str(record), "included", None)
    assert (second["section"], second["outcome"], second["characters"]) == ("usecases", "duplicate", 0)
    assert [one["status"] for one in assembled["receipt"]["strategies"]] == ["ok", "not_configured", "ok"]
    assert assembled["receipt"]["characters"] == len(assembled["formatted"])


async def test_a_context_that_cannot_be_is_told_what_is_wrong(http: httpx.AsyncClient) -> None:
    question = {"question": "x", "intent": "business"}
    bad: list[tuple[str, dict[str, Any], int, str]] = [
        ("retrieve", {"query": " "}, 400, "empty_query"),
        ("retrieve", {"query": "x", "scopes": ["gossip"]}, 400, "unknown_scope"),
        ("retrieve", {"query": "x", "run_id": "\x00"}, 400, "invalid_metadata_filter"),
        ("retrieve", {"query": "x", "metadata_filter": {"a": [1]}}, 422, "invalid_request"),
        ("retrieve", {"query": "x", "metadata_filter": {"\ud800": 1}}, 422, "invalid_request"),
        ("retrieve", {"query": "x", "max_chars": 1}, 422, "invalid_request"),
        ("assemble", question | {"question": "\t"}, 400, "empty_query"),
        ("assemble", question | {"intent": "gossip"}, 422, "invalid_request"),
        ("assemble", question | {"persona": "a\nb"}, 400, "invalid_persona"),
        ("assemble", question | {"channel_id": "slack:1"}, 404, "channel_not_found"),
        ("assemble", question | {"budgets": {"max_chars": 1}}, 422, "invalid_request"),
    ]
    for path, fields, status, code in bad:
        body, headers = json.dumps(fields), {"content-type": "application/json"}
        answer = await http.post(f"/context/{path}", content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (status, code), fields


async def test_without_a_search_service_the_rest_goes_on(pool: Pool, tmp_path: Path) -> None:
    async with (
        open_channel(ChannelSettings(target=NOWHERE)) as nowhere,
        gateway(pool, tmp_path, nowhere) as down,
        gateway(pool, tmp_path, None) as unset,
    ):
        answers = [
            await client.post(path, json=body)
            for client in (down, unset)
            for path, body in (
                ("/search", {"query": "x"}),
                ("/context/retrieve", {"query": "x"}),
                ("/context/assemble", {"question": "x", "intent": "business"}),
            )
        ]
        listed = await down.get("/knowledge-bases")

    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(503, "search_unavailable")}
    assert NOWHERE not in answers[0].text
    assert listed.status_code == 200


async def test_a_failure_keeps_its_code_and_the_service_gets_caller_and_trace(pool: Pool, tmp_path: Path) -> None:
    servicer = FailingSearch()
    trace = "0af7651916cd43dd8448eb211c80319c"

    def register(server: grpc.aio.Server) -> None:
        search_pb2_grpc.add_SearchServiceServicer_to_server(servicer, server)

    got = []
    async with (
        serve(GrpcSettings(), AUTH, register, []) as server,
        open_channel(ChannelSettings(target=f"127.0.0.1:{server.port}")) as channel,
        gateway(pool, tmp_path, channel) as http,
    ):
        for failure in (
            errors.ResourceExhausted("full", code="too_busy"),
            errors.NotFound("gone"),
            errors.DeadlineExceeded("late"),
            errors.Unavailable("no database", code="database_unavailable"),
            RuntimeError("a secret"),
        ):
            servicer.failure = failure
            headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
            answer = await http.post("/search", json={"query": "x"}, headers=headers)
            assert "secret" not in answer.text
            got.append((answer.status_code, answer.json()["code"]))
        authorization = http.headers["authorization"]

    assert got == [
        (429, "too_busy"),
        (404, "not_found"),
        (503, "deadline_exceeded"),
        (503, "database_unavailable"),
        (500, "internal"),
    ]
    assert servicer.metadata["authorization"] == authorization
    assert trace in servicer.metadata["traceparent"]
