"""AssembleContext as its clients see it, over the real search service and a skills service of the test's own."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest

from kbmesh.postgres import Pool, PostgresSettings
from kbmesh.rpc import ChannelSettings, GrpcSettings, serve
from kbmesh.search.v1 import assemble_pb2 as pb
from kbmesh.search.v1 import search_pb2_grpc
from kbmesh.skills.v1 import skills_pb2, skills_pb2_grpc
from tests.support.search import Corpus, Text
from tests.support.search_service import (
    ANN,
    AUTH,
    NOWHERE,
    Client,
    EmbeddingStub,
    reason_of,
    running_search,
    token,
)

NEAR, FAR = (1, 0, 0, 0), (0, 1, 0, 0)


@dataclass
class Skills(skills_pb2_grpc.SkillsServiceServicer):
    answer: skills_pb2.ResolveSkillsResponse = field(default_factory=skills_pb2.ResolveSkillsResponse)
    requests: list[skills_pb2.ResolveSkillsRequest] = field(default_factory=list)
    authorization: str = ""

    async def ListSkills(self, request: Any, context: Any) -> skills_pb2.ListSkillsResponse:
        raise NotImplementedError

    async def GetSkill(self, request: Any, context: Any) -> skills_pb2.GetSkillResponse:
        raise NotImplementedError

    async def ResolveSkills(self, request: Any, context: Any) -> skills_pb2.ResolveSkillsResponse:
        self.requests.append(request)
        self.authorization = dict(context.invocation_metadata())["authorization"]
        return self.answer


@pytest.fixture
async def corpus(pool: Pool) -> Corpus:
    corpus = Corpus(pool)
    await corpus.create_space()
    return corpus


@pytest.fixture
def embedding() -> EmbeddingStub:
    return EmbeddingStub()


@pytest.fixture
def skills() -> Skills:
    return Skills()


@pytest.fixture
async def client(
    postgres_settings: PostgresSettings, embedding: EmbeddingStub, skills: Skills
) -> AsyncIterator[Client]:
    def register(server: grpc.aio.Server) -> None:
        skills_pb2_grpc.add_SkillsServiceServicer_to_server(skills, server)

    async with (
        serve(GrpcSettings(), AUTH, register, []) as server,
        running_search(
            postgres_settings, embedding, skills=ChannelSettings(target=f"127.0.0.1:{server.port}")
        ) as client,
    ):
        yield client


async def assemble(
    client: Client, intent: str = "strategic", *, caller: UUID = ANN, **fields: Any
) -> pb.AssembleContextResponse:
    stub = search_pb2_grpc.SearchServiceStub(client.channel)
    request = pb.AssembleContextRequest(**{"question": "churn", "intent": intent} | fields)
    return await stub.AssembleContext(request, metadata=token(caller), timeout=20)


def told(answer: pb.AssembleContextResponse) -> list[tuple[str, str, str]]:
    return [
        (entry.section, entry.source_id, pb.Outcome.Name(entry.outcome).removeprefix("OUTCOME_"))
        for entry in answer.receipt.entries
    ]


def statuses(answer: pb.AssembleContextResponse) -> list[tuple[str, str]]:
    return [
        (pb.StrategyStatus.Name(one.status).removeprefix("STRATEGY_STATUS_"), one.reason.partition(":")[0])
        for one in answer.receipt.strategies
    ]


async def test_three_strategies_make_one_text_and_a_receipt_of_it(
    corpus: Corpus, client: Client, embedding: EmbeddingStub, skills: Skills
) -> None:
    kb_id = await corpus.add_base(ANN)
    [document] = await corpus.add_document(kb_id, Text("Churn is 2 percent."), filename="a.pdf")
    [context] = await corpus.add_record("business_context", Text("A bank that fears churn."), title="Bank")
    [insight] = await corpus.add_record("environment_insight", Text("Orders are stale.", FAR))
    [table] = await corpus.add_record("table_detail", Text("churn table", FAR))
    skills.answer = skills_pb2.ResolveSkillsResponse(
        system_overlay="Never guess.",
        overlay_chunks=[skills_pb2.ResolvedChunk(skill_id="sql", chunk_id="rules", title="Rules")],
        context_sections=[
            skills_pb2.ResolvedChunk(skill_id="sql", chunk_id="joins", title="Joins", content="Join once.")
        ],
        left_out=[skills_pb2.ChunkReference(skill_id="sql", chunk_id="dates")],
    )

    answer = await assemble(client, persona="analyst", budgets=pb.ContextBudgets(max_chars=16_000))

    assert answer.system_overlay == "Never guess."
    assert [(section.strategy, section.name) for section in answer.sections] == [
        (pb.STRATEGY_DIRECT, "business_context"),
        (pb.STRATEGY_DIRECT, "estate_summary"),
        (pb.STRATEGY_SKILLS, "skill_guidance"),
        (pb.STRATEGY_RETRIEVAL, "estate"),
        (pb.STRATEGY_RETRIEVAL, "documents"),
    ]
    assert (
        "The question is asked by: analyst\n\n## Business context\n\n[GENERATED INTELLIGENCE]" in answer.formatted
    )
    assert "## Estate (records: environment_insight 1, table_detail 1)" in answer.formatted
    assert "[UPLOADED DOCUMENT: a.pdf] CustomerFact\n| Churn is 2 percent." in answer.formatted
    assert told(answer) == [
        ("system_overlay", "sql/rules", "INCLUDED"),
        ("business_context", str(context), "INCLUDED"),
        ("estate_summary", str(insight), "INCLUDED"),
        ("skill_guidance", "sql/joins", "INCLUDED"),
        ("usecases", str(context), "DUPLICATE"),
        ("estate", str(table), "INCLUDED"),
        ("documents", answer.receipt.entries[6].source_id, "INCLUDED"),
        ("", "sql/dates", "OVER_BUDGET"),
    ]
    receipt = answer.receipt
    assert receipt.entries[6].chunk_id == str(document)
    assert [entry.HasField("score") for entry in receipt.entries] == [False] * 4 + [True] * 3 + [False]
    in_text = sum(entry.characters for entry in receipt.entries)
    assert receipt.framing_characters + in_text == len(answer.formatted)
    assert receipt.characters == len(answer.formatted) + len("Never guess.")
    assert (receipt.tokens, receipt.max_chars) == (-(-receipt.characters // 4), 16_000)
    assert [report.characters for report in receipt.strategies] == [
        sum(entry.characters for entry in receipt.entries if entry.strategy == strategy)
        + (12 if strategy == pb.STRATEGY_SKILLS else 0)
        for strategy in (pb.STRATEGY_DIRECT, pb.STRATEGY_SKILLS, pb.STRATEGY_RETRIEVAL)
    ]
    assert statuses(answer) == [("OK", "")] * 3
    assert (answer.degraded, receipt.relaxed) == (False, False)
    assert [(scope.scope, scope.top_k, scope.min_score, scope.found) for scope in receipt.scopes] == [
        ("usecases", 15, 0.30, 1),
        ("estate", 10, 0.30, 1),
        ("benchmarks", 8, 0.30, 0),
        ("documents", 5, 0.30, 1),
        ("skills", 4, 0.40, 0),
    ]
    assert receipt.scopes[1].below_floor == 1
    # The question is encoded once for five scopes, and skills are asked in the name of the caller.
    assert len(embedding.requests) == 1
    [asked] = skills.requests
    assert (asked.intent, asked.question, asked.max_overlay_chars, asked.max_context_chars) == (
        "strategic",
        "churn",
        2_000,
        2_000,
    )
    assert skills.authorization.startswith("Bearer ")


async def test_records_of_a_persona_come_first_then_the_newest(corpus: Corpus, client: Client, pool: Pool) -> None:
    named: list[dict[str, object]] = [
        {"personas": ["analyst", "cfo"]},
        {},
        {"personas": "analyst"},
        {"personas": ["nobody"]},
    ]
    ids = [
        str((await corpus.add_record("fabric_report", Text("A report", FAR), attributes=attributes))[0])
        for attributes in named
    ]
    await corpus.add_record("fabric_report", Text("not live", FAR), live=False)
    for age, source_id in enumerate(ids):
        await pool.execute(
            "UPDATE records SET updated_at = now() - make_interval(hours => $1) WHERE source_id = $2",
            age,
            source_id,
        )

    async def order(**fields: Any) -> list[str]:
        answer = await assemble(client, "navigation", **fields)
        return [source_id for section, source_id, _ in told(answer) if section == "deployed_assets"]

    assert await order() == ids
    assert await order(persona="analyst") == [ids[0], ids[2], ids[1], ids[3]]
    assert await order(persona='"]; DROP TABLE records') == ids


async def test_documents_are_those_that_the_caller_and_the_channel_see(corpus: Corpus, client: Client) -> None:
    mine, other = await corpus.add_base(ANN), await corpus.add_base(ANN)
    await corpus.add_document(mine, Text("churn of mine"))
    await corpus.add_document(other, Text("churn of another base"))
    await corpus.add_document(await corpus.add_base(uuid4()), Text("churn of a stranger"))
    await corpus.add_channel(ANN, "slack:1", mine)

    both = (await assemble(client)).formatted
    one = (await assemble(client, channel_id="slack:1")).formatted

    assert ("mine" in both, "another base" in both, "stranger" in both) == (True, True, False)
    assert ("mine" in one, "another base" in one, "stranger" in one) == (True, False, False)
    nobodys = await assemble(client, caller=uuid4())
    assert (nobodys.formatted, list(nobodys.receipt.entries)) == ("", [])
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await assemble(client, channel_id="slack:2")
    assert reason_of(failure) == "CHANNEL_NOT_FOUND"


async def test_floors_are_relaxed_once_if_nothing_clears_them(corpus: Corpus, client: Client) -> None:
    [nearly] = await corpus.add_record("use_case", Text("retention", (0.32, 0.947, 0, 0)))

    relaxed = await assemble(client, "dashboard")
    strict = await assemble(client, "strategic")

    assert ("usecases", str(nearly), "INCLUDED") in told(relaxed)
    assert relaxed.receipt.relaxed
    assert [scope.min_score for scope in relaxed.receipt.scopes] == [0.30, 0.30, 0.25, 0.30]
    assert not strict.receipt.relaxed


async def test_what_fails_is_named_and_the_rest_answers(
    corpus: Corpus, postgres_settings: PostgresSettings, embedding: EmbeddingStub
) -> None:
    await corpus.add_record("business_context", Text("A bank that fears churn."))

    async with running_search(
        postgres_settings, embedding, embedding_up=False, skills=ChannelSettings(target=NOWHERE)
    ) as client:
        down = await assemble(client)
    async with running_search(postgres_settings, embedding) as client:
        unset = await assemble(client)

    assert statuses(down) == [("OK", ""), ("FAILED", "skills_unavailable"), ("DEGRADED", "embedding_unavailable")]
    assert [outcome for _, _, outcome in told(down)] == ["INCLUDED", "DUPLICATE"]
    assert statuses(unset) == [("OK", ""), ("NOT_CONFIGURED", "skills_not_configured"), ("OK", "")]
    assert (down.degraded, unset.degraded) == (True, False)
    assert NOWHERE not in str(down)


async def test_a_table_that_cannot_be_read_costs_one_strategy(corpus: Corpus, client: Client, pool: Pool) -> None:
    await corpus.add_record("business_context", Text("A bank that fears churn."))
    await pool.execute("ALTER TABLE records RENAME COLUMN updated_at TO gone")

    answer = await assemble(client)

    assert statuses(answer)[0] == ("FAILED", "internal")
    assert [section.name for section in answer.sections] == ["usecases"]
    assert answer.degraded


async def test_bad_input_is_refused_with_a_code(corpus: Corpus, client: Client) -> None:
    for fields, code in (
        ({"question": ""}, "EMPTY_QUERY"),
        ({"question": "a" * 4_001}, "QUERY_TOO_LONG"),
        ({"intent": "gossip"}, "UNKNOWN_INTENT"),
        ({"intent": ""}, "UNKNOWN_INTENT"),
        ({"persona": "a" * 101}, "INVALID_PERSONA"),
        ({"channel_id": "a" * 201}, "INVALID_CHANNEL_ID"),
        ({"budgets": pb.ContextBudgets(max_chars=0)}, "BUDGET_OUT_OF_RANGE"),
        ({"budgets": pb.ContextBudgets(max_overlay_chars=-1)}, "BUDGET_OUT_OF_RANGE"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await assemble(client, **fields)

        assert failure.value.code() == grpc.StatusCode.INVALID_ARGUMENT, fields
        assert reason_of(failure) == code, fields
