"""The skills service as its callers meet it: gRPC in front, the outbox behind."""

import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import grpc
import pytest
from google.protobuf import json_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import SecretStr

from kbmesh.auth import AuthMode, AuthSettings
from kbmesh.events.v1.records_pb2 import RecordUpserted
from kbmesh.postgres import PostgresSettings
from kbmesh.rpc import ChannelSettings, GrpcSettings, open_channel
from kbmesh.rpc.status import reason
from kbmesh.skills.v1 import skills_pb2 as pb
from kbmesh.skills.v1.skills_pb2_grpc import SkillsServiceStub
from services.skills.bootstrap import bootstrap
from services.skills.content.databricks_sql_patterns import SKILL
from services.skills.settings import SkillsSettings

TIMEOUT_S = 10


def settings_for(postgres: PostgresSettings, auth: AuthSettings) -> SkillsSettings:
    return SkillsSettings(postgres=postgres, auth=auth, grpc=GrpcSettings(port=0), topic_prefix="wire")


@pytest.fixture
def settings(postgres_settings: PostgresSettings) -> SkillsSettings:
    return settings_for(postgres_settings, AuthSettings(mode=AuthMode.OFF))


@pytest.fixture
async def channel(settings: SkillsSettings) -> AsyncIterator[grpc.aio.Channel]:
    async with (
        bootstrap(settings) as server,
        open_channel(ChannelSettings(target=f"127.0.0.1:{server.port}")) as channel,
    ):
        yield channel


def reason_of(error: grpc.aio.AioRpcError) -> str | None:
    return reason(error)


async def test_skills_are_listed_with_all_that_a_prompt_needs(channel: grpc.aio.Channel) -> None:
    listed = await SkillsServiceStub(channel).ListSkills(pb.ListSkillsRequest(), timeout=TIMEOUT_S)

    assert listed.next_page_token == ""
    [skill] = [skill for skill in listed.skills if skill.id == "databricks-sql-patterns"]
    assert list(skill.relevance.intents) == ["technical", "dashboard", "exploration"]
    assert "exampleQueries" in skill.relevance.genie_passes
    assert "sql-generation" in skill.relevance.pipeline_steps
    assert [chunk.id for chunk in skill.chunks] == [chunk.id for chunk in SKILL.chunks]
    [slow] = [chunk for chunk in skill.chunks if chunk.id == "slow-queries"]
    assert slow.category == pb.CHUNK_CATEGORY_ANTI_PATTERNS
    assert slow.content.startswith("- A function or cast around a filtered")
    assert not slow.HasField("max_char_budget")


async def test_one_skill_is_got_by_its_id(channel: grpc.aio.Channel) -> None:
    answer = await SkillsServiceStub(channel).GetSkill(pb.GetSkillRequest(skill_id=SKILL.id), timeout=TIMEOUT_S)

    assert answer.skill.name == "Databricks SQL patterns"
    assert len(answer.skill.chunks) == len(SKILL.chunks)


async def test_an_unknown_skill_is_not_found_with_a_reason(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await SkillsServiceStub(channel).GetSkill(pb.GetSkillRequest(skill_id="cooking"), timeout=TIMEOUT_S)

    assert failed.value.code() == grpc.StatusCode.NOT_FOUND
    assert reason_of(failed.value) == "SKILL_NOT_FOUND"


async def test_a_page_token_from_elsewhere_is_an_invalid_argument(channel: grpc.aio.Channel) -> None:
    request = pb.ListSkillsRequest(page_token="somewhere-else")

    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await SkillsServiceStub(channel).ListSkills(request, timeout=TIMEOUT_S)

    assert failed.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert reason_of(failed.value) == "BAD_PAGE_TOKEN"


async def test_the_service_is_healthy_once_its_skills_are_published(channel: grpc.aio.Channel) -> None:
    request = health_pb2.HealthCheckRequest(service="kbmesh.skills.v1.SkillsService")
    health: Any = health_pb2_grpc.HealthStub(channel)

    answer = await health.Check(request, timeout=TIMEOUT_S)

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_call_without_a_token_is_refused(postgres_settings: PostgresSettings) -> None:
    settings = settings_for(postgres_settings, AuthSettings(mode=AuthMode.HS256, secret=SecretStr("s" * 32)))
    async with (
        bootstrap(settings) as server,
        open_channel(ChannelSettings(target=f"127.0.0.1:{server.port}")) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await SkillsServiceStub(channel).ListSkills(pb.ListSkillsRequest(), timeout=TIMEOUT_S)

    assert failed.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert reason_of(failed.value) == "TOKEN_MISSING"


async def test_a_start_puts_every_chunk_into_the_outbox(channel: grpc.aio.Channel, pool: asyncpg.Pool) -> None:
    rows = await pool.fetch("SELECT topic, key, headers, payload FROM outbox ORDER BY id")

    assert [row["key"] for row in rows] == [f"skill_chunk:{SKILL.id}/{chunk.id}" for chunk in SKILL.chunks]
    assert {row["topic"] for row in rows} == {"wire.records.v1"}
    headers = json.loads(rows[0]["headers"])
    assert headers["ce_type"] == "kbmesh.events.v1.RecordUpserted"
    assert headers["ce_source"] == "/kbmesh/skills"
    event = RecordUpserted.FromString(rows[0]["payload"])
    assert (event.kind, event.source_id) == ("skill_chunk", f"{SKILL.id}/named-steps")
    assert event.title == "Databricks SQL patterns: Build a query from named steps"
    assert event.content == SKILL.chunks[0].content
    assert json_format.MessageToDict(event.metadata) == {
        "skill_id": SKILL.id,
        "chunk_id": "named-steps",
        "category": "patterns",
        "intents": ["technical", "dashboard", "exploration"],
        "genie_passes": ["instructions", "semanticExpressions", "exampleQueries", "joinInference"],
        "pipeline_steps": ["sql-generation", "dashboard-design"],
    }


async def test_a_second_start_publishes_the_same_rows_at_a_higher_revision(
    settings: SkillsSettings, pool: asyncpg.Pool
) -> None:
    for _ in range(2):
        async with bootstrap(settings):
            pass

    events = [
        RecordUpserted.FromString(row["payload"])
        for row in await pool.fetch("SELECT payload FROM outbox ORDER BY id")
    ]
    first, second = events[: len(SKILL.chunks)], events[len(SKILL.chunks) :]
    assert [event.content for event in second] == [event.content for event in first]
    assert max(event.revision for event in first) < min(event.revision for event in second)


async def resolve(channel: grpc.aio.Channel, **fields: Any) -> pb.ResolveSkillsResponse:
    return await SkillsServiceStub(channel).ResolveSkills(pb.ResolveSkillsRequest(**fields), timeout=TIMEOUT_S)


@pytest.mark.parametrize(
    ("target", "overlay", "context"),
    [
        ({"intent": "technical"}, 1200, 4000),
        ({"genie_pass": "instructions"}, 800, 2000),
        ({"genie_pass": "joinInference"}, 600, 2000),
        ({"pipeline_step": "sql-generation"}, 1200, 4000),
    ],
)
async def test_skills_are_resolved_for_a_target_within_its_budgets(
    channel: grpc.aio.Channel, target: dict[str, str], overlay: int, context: int
) -> None:
    answer = await resolve(channel, **target)

    assert overlay * 0.8 < len(answer.system_overlay) == answer.overlay_chars <= overlay
    sections = sum(len(section.title) + len(section.content) for section in answer.context_sections)
    assert context * 0.8 < sections == answer.context_chars <= context
    assert all(not chunk.content for chunk in answer.overlay_chunks)
    used = [chunk.chunk_id for chunk in (*answer.overlay_chunks, *answer.context_sections)]
    left_out = [chunk.chunk_id for chunk in answer.left_out]
    assert sorted(used + left_out) == sorted(chunk.id for chunk in SKILL.chunks)
    assert answer == await resolve(channel, **target)


async def test_budgets_are_set_by_the_call(channel: grpc.aio.Channel) -> None:
    answer = await resolve(channel, intent="technical", max_overlay_chars=0, max_context_chars=100_000)

    assert answer.system_overlay == ""
    assert not any(section.shortened for section in answer.context_sections)
    whole = {chunk.id: chunk.content for chunk in SKILL.chunks}
    assert {section.chunk_id: section.content for section in answer.context_sections}.items() <= whole.items()


async def test_a_target_that_no_skill_names_has_an_empty_answer(channel: grpc.aio.Channel) -> None:
    assert await resolve(channel, pipeline_step="scoring", question="how?") == pb.ResolveSkillsResponse()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "NO_TARGET"),
        ({"intent": ""}, "UNKNOWN_TARGET"),
        ({"intent": "sql-generation"}, "UNKNOWN_TARGET"),
        ({"genie_pass": "Benchmarks\x00"}, "UNKNOWN_TARGET"),
        ({"intent": "technical", "question": "a" * 4001}, "QUESTION_TOO_LONG"),
        ({"intent": "technical", "max_overlay_chars": -1}, "BUDGET_OUT_OF_RANGE"),
        ({"intent": "technical", "max_context_chars": 100_001}, "BUDGET_OUT_OF_RANGE"),
    ],
)
async def test_what_cannot_be_resolved_is_an_invalid_argument(
    channel: grpc.aio.Channel, fields: dict[str, Any], expected: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await resolve(channel, **fields)

    assert failed.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert reason_of(failed.value) == expected
