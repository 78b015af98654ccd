"""The MCP server as clients see it: the client of the SDK, over each transport, and the real search service."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from kbmesh.auth import AuthMode, AuthSettings
from kbmesh.errors import Misconfigured
from kbmesh.http import HttpSettings
from kbmesh.mcp import serve
from kbmesh.mcp.server import create_server
from kbmesh.postgres import Pool, PostgresSettings
from kbmesh.provenance import Tier
from kbmesh.rpc import ChannelSettings, GrpcSettings
from kbmesh.rpc import serve as serve_grpc
from kbmesh.search.v1 import assemble_pb2, context_pb2, search_pb2, search_pb2_grpc
from kbmesh.tools import KbSearchArguments
from tests.support.search import Corpus, Text
from tests.support.search_service import ANN, AUTH, NOWHERE, EmbeddingStub, running_search, token

KBMESH = Path(sys.executable).with_name("kbmesh")
BOB = uuid4()


def authorization(user: UUID) -> str:
    return dict(token(user))["authorization"]


def text_of(result: CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


def environment(**variables: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **variables}


@pytest.fixture
async def corpus(pool: Pool) -> Corpus:
    """A document of Ann's and one of Bob's."""
    corpus = Corpus(pool)
    await corpus.create_space()
    for user, name in ((ANN, "ann.pdf"), (BOB, "bob.pdf")):
        passage = Text("Churn is 2 percent.", tier=Tier.INDUSTRY_BENCHMARK, page=4, headings=["Metrics"])
        await corpus.add_document(await corpus.add_base(user), passage, filename=name)
    return corpus


@pytest.fixture
async def search(corpus: Corpus, postgres_settings: PostgresSettings) -> AsyncIterator[ChannelSettings]:
    async with running_search(postgres_settings, EmbeddingStub()) as client:
        yield ChannelSettings(target=f"127.0.0.1:{client.server.port}", timeout_s=10)


# The SDK's clients and servers are entered and left by the same task, which a fixture is not.
@asynccontextmanager
async def over_http(port: int, user: UUID, **options: Any) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers={"Authorization": authorization(user)}) as http:
        transport = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
        async with Client(transport, **options) as client:
            yield client


async def files_of(client: Client, **arguments: Any) -> list[str]:
    result = await client.call_tool("kb_search", {"query": "churn", **arguments})
    assert not result.is_error, text_of(result)
    return [passage["citation"]["filename"] for passage in result.structured_content["passages"]]


async def test_a_program_gets_the_tool_over_stdio_in_the_name_of_its_token(
    search: ChannelSettings, tmp_path: Path
) -> None:
    command = StdioServerParameters(
        command=str(KBMESH),
        args=["mcp"],
        env=environment(
            KBMESH_SEARCH_TARGET=search.target, KBMESH_TOKEN=authorization(ANN).removeprefix("Bearer ")
        ),
    )
    with (tmp_path / "stderr").open("w") as errors:
        async with Client(stdio_client(command, errors), mode="legacy") as client:
            [tool] = (await client.list_tools()).tools
            found = await client.call_tool("kb_search", {"query": "what is our churn?", "limit": 3})

    assert (tool.name, tool.input_schema) == ("kb_search", KbSearchArguments.model_json_schema())
    assert tool.annotations is not None
    assert tool.annotations.read_only_hint
    [passage] = found.structured_content["passages"]
    assert passage["label"] == "[UPLOADED DOCUMENT: ann.pdf]"
    assert (passage["content"], passage["tier"]) == ("Churn is 2 percent.", "IndustryBenchmark")
    assert (passage["citation"]["page"], passage["citation"]["headings"]) == (4, ["Metrics"])
    assert passage["score"] == pytest.approx(0.7)
    assert found.structured_content["degraded"] is False
    assert "1. [UPLOADED DOCUMENT: ann.pdf], IndustryBenchmark, page 4, score 0.70" in text_of(found)


async def test_everything_that_search_takes_can_be_asked_for(search: ChannelSettings, corpus: Corpus) -> None:
    kb_id, document_id = await corpus.add_base(ANN), uuid4()
    await corpus.add_document(
        kb_id,
        Text("Churn of 2026"),
        document_id=document_id,
        filename="plan.pdf",
        category="strategy",
        metadata={"owner": "Finance", "year": 2026},
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    await corpus.add_document(kb_id, Text("Loss", (0.6, 0.8, 0, 0)), filename="loss.txt")
    await corpus.add_channel(ANN, "slack:1", kb_id)
    async with Client(create_server(search, lambda _: authorization(ANN))) as client:
        assert await files_of(client, channel_id="slack:1") == ["plan.pdf", "loss.txt"]
        assert await files_of(client, channel_id="slack:1", min_score=0.9) == ["plan.pdf"]
        assert await files_of(client, channel_id="slack:1", mode="keyword") == ["plan.pdf"]
        for filters in (
            {"category": "strategy"},
            {"document_ids": [str(document_id)]},
            {"metadata": {"owner": "Finance", "year": {"gte": 2025}}},
            {"created_before": "2026-01-01T01:00:01+01:00"},
        ):
            assert await files_of(client, filters=filters) == ["plan.pdf"], filters


async def test_each_caller_over_http_finds_what_its_own_token_shows(search: ChannelSettings) -> None:
    async with (
        serve(AUTH, HttpSettings(), search) as port,
        over_http(port, ANN) as ann,
        over_http(port, BOB, mode="legacy") as bob,
        over_http(port, uuid4()) as stranger,
    ):
        assert ann.protocol_version > bob.protocol_version
        found = await asyncio.gather(*(files_of(client) for client in (ann, bob, stranger, ann, bob)))

    assert found == [["ann.pdf"], ["bob.pdf"], [], ["ann.pdf"], ["bob.pdf"]]


async def test_over_http_nobody_gets_in_without_a_token_nor_a_web_page_by_its_own_name(
    search: ChannelSettings,
) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"Authorization": authorization(ANN), "Accept": "application/json, text/event-stream"}
    async with (
        serve(AUTH, HttpSettings(), search, ["kb.example.com"]) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
    ):

        async def status(method: str = "POST", body: object = ping, **changes: str) -> int:
            answer = await http.request(method, "/mcp", json=body, headers=headers | changes)
            return answer.status_code

        refused = await http.post("/mcp", json=ping)
        expired = dict(token(ANN, exp=1))["authorization"]

        assert (refused.status_code, refused.json()["code"]) == (401, "token_missing")
        assert refused.headers["WWW-Authenticate"] == "Bearer"
        assert await status(Authorization=expired) == 401
        assert await status() == 200
        assert await status(Host="kb.example.com", Origin="https://kb.example.com") == 200
        assert await status(Host="attacker.example") == 421
        assert await status(Origin="https://attacker.example") == 403
        assert await status("GET") == 405
        assert await status(body={**ping, "params": {"_meta": {"long": "x" * 300_000}}}) == 413


async def test_what_cannot_be_asked_is_told_to_the_model(search: ChannelSettings) -> None:
    async with Client(create_server(search, lambda _: authorization(ANN))) as client:
        for arguments, words in (
            ({}, "invalid_request: query: "),
            ({"query": " \t"}, "empty_query: "),
            ({"query": "x" * 4_001}, "invalid_request: query: "),
            ({"query": "x", "limit": 51}, "invalid_request: limit: "),
            ({"query": "x", "mode": "psychic"}, "invalid_request: mode: "),
            (
                {"query": "x", "filters": {"metadata": {"a": {"$where": "1"}}}},
                "invalid_request: filters.metadata.a",
            ),
            ({"query": "x", "filters": {"metadata": {"a" * 101: 1}}}, "invalid_filter: "),
            ({"query": "x", "channel_id": "slack:9"}, "channel_not_found: "),
            ({"query": "x", "kb_ids": ["nobody"] * 90}, "invalid_request: kb_ids.0: "),
            ({"query": "x", "surprise" * 1_000: 1}, "invalid_request: surprise"),
        ):
            result = await client.call_tool("kb_search", arguments)
            assert result.is_error
            assert text_of(result).startswith(words)
            assert len(text_of(result)) < 1_500
        with pytest.raises(MCPError, match="no such tool"):
            await client.call_tool("kb_delete", {})

        assert await files_of(client) == ["ann.pdf"]


async def test_an_answer_of_keywords_alone_says_so(corpus: Corpus, postgres_settings: PostgresSettings) -> None:
    async with running_search(postgres_settings, EmbeddingStub(), embedding_up=False) as running:
        search = ChannelSettings(target=f"127.0.0.1:{running.server.port}", timeout_s=10)
        async with Client(create_server(search, lambda _: authorization(ANN))) as client:
            result = await client.call_tool("kb_search", {"query": "churn"})

    assert result.structured_content["degraded"] is True
    assert "degraded" in text_of(result)


def caller_of(authorization: str | None, _: object) -> str | None:
    return authorization


class SilentSearch(search_pb2_grpc.SearchServiceServicer):
    async def KbSearch(self, request: Any, context: Any) -> search_pb2.KbSearchResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async def RetrieveContext(self, request: Any, context: Any) -> context_pb2.RetrieveContextResponse:
        raise NotImplementedError

    async def AssembleContext(self, request: Any, context: Any) -> assemble_pb2.AssembleContextResponse:
        raise NotImplementedError

    def StreamSearch(self, request_iterator: Any, context: Any) -> Any:
        raise NotImplementedError


async def test_what_search_refuses_or_does_not_answer_is_an_error_in_time() -> None:
    register = partial(search_pb2_grpc.add_SearchServiceServicer_to_server, SilentSearch())
    texts = []
    async with serve_grpc(GrpcSettings(stop_grace_s=0), AUTH, register, []) as silent:
        for target, caller in (
            (NOWHERE, authorization(ANN)),
            (f"127.0.0.1:{silent.port}", authorization(ANN)),
            (f"127.0.0.1:{silent.port}", None),
        ):
            search = ChannelSettings(target=target, timeout_s=0.5)
            async with Client(create_server(search, partial(caller_of, caller))) as client:
                result = await client.call_tool("kb_search", {"query": "churn"})
                assert result.is_error
                texts.append(text_of(result))

    assert texts[0] == "search_unavailable: the search service does not answer"
    assert texts[1].startswith(("search_unavailable: ", "deadline_exceeded: "))
    assert texts[2].startswith("token_missing: ")


async def test_the_command_serves_http_until_it_is_told_to_stop(search: ChannelSettings) -> None:
    process = await asyncio.create_subprocess_exec(
        KBMESH,
        *("mcp", "--transport", "http", "--port", "0", "--target", search.target),
        env=environment(KBMESH_MCP_AUTH__MODE="off", KBMESH_TOKEN="of nobody here"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = json.loads(await process.stdout.readline())
        assert line["event"] == "http_listening", line
        async with over_http(line["port"], BOB) as client:
            assert await files_of(client) == ["bob.pdf"]
        process.send_signal(signal.SIGTERM)
        await process.communicate()
        assert process.returncode == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_without_authentication_it_listens_on_loopback_alone() -> None:
    everywhere = HttpSettings(host="0.0.0.0")  # noqa: S104 - what is refused
    with pytest.raises(Misconfigured, match="loopback"):
        async with serve(AuthSettings(mode=AuthMode.OFF), everywhere, ChannelSettings(target=NOWHERE)):
            pass
