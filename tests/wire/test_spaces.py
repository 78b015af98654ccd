"""The service of those who operate embedding spaces, through a real server."""

from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc
import pytest
from pydantic import SecretStr

from kbmesh.auth import AuthMode, AuthSettings
from kbmesh.embedding.v1 import spaces_pb2 as pb
from kbmesh.embedding.v1.spaces_pb2_grpc import SpaceServiceStub
from services.embedder.entrypoints.spaces_grpc import SpaceServicer
from tests.support.rpc import OFF, failure, reason_of
from tests.support.spaces import ACTIVE, CHUNKS, SpacesInMemory, serving_spaces, word_models
from tests.support.tokens import SECRET, TEAM, token

HS256 = AuthSettings(mode=AuthMode.HS256, secret=SecretStr(SECRET))
WIDE = "more_words_512"


class Operator:
    """Calls every method with one token."""

    def __init__(self, channel: grpc.aio.Channel, authorization: str | None) -> None:
        self._stub = SpaceServiceStub(channel)
        self._options: dict[str, Any] = {
            "timeout": 10,
            "metadata": (("authorization", authorization),) if authorization else (),
        }

    async def list(self) -> list[pb.Space]:
        return [*(await self._stub.ListSpaces(pb.ListSpacesRequest(), **self._options)).spaces]

    async def create(self, **request: Any) -> pb.CreateSpaceResponse:
        return await self._stub.CreateSpace(pb.CreateSpaceRequest(**request), **self._options)

    async def check(self, **request: Any) -> pb.ShadowReport:
        return (await self._stub.CheckSpace(pb.CheckSpaceRequest(**request), **self._options)).report

    async def activate(self, **request: Any) -> pb.ActivateSpaceResponse:
        return await self._stub.ActivateSpace(pb.ActivateSpaceRequest(**request), **self._options)

    async def rollback(self) -> pb.Space:
        return (await self._stub.RollbackSpace(pb.RollbackSpaceRequest(), **self._options)).space

    async def drop(self, **request: Any) -> pb.Space:
        return (await self._stub.DropSpace(pb.DropSpaceRequest(**request), **self._options)).space


async def refused(call: Awaitable[object]) -> tuple[grpc.StatusCode, str | None]:
    error = await failure(call)
    return error.code(), reason_of(error)


@pytest.fixture
def store() -> SpacesInMemory:
    return SpacesInMemory(ACTIVE, word_models(), CHUNKS)


@pytest.fixture
async def channel(store: SpacesInMemory) -> AsyncIterator[grpc.aio.Channel]:
    servicer = SpaceServicer()
    servicer.open(store, word_models())
    async with (
        serving_spaces(servicer, HS256) as target,
        grpc.aio.insecure_channel(target) as channel,
    ):
        yield channel


@pytest.fixture
def operator(channel: grpc.aio.Channel) -> Operator:
    return Operator(channel, token(roles=["admin"]))


async def test_a_space_lives_from_creation_to_its_end(operator: Operator, store: SpacesInMemory) -> None:
    created = await operator.create(model="more-words")
    assert (created.space.space_id, created.space.status) == (WIDE, pb.SPACE_STATUS_BUILDING)
    assert (created.space.filled, created.space.waiting, created.space.indexed) == (0, len(CHUNKS), False)
    assert not created.space.HasField("eta_s")
    assert not created.warnings

    store.fill(WIDE)
    active, building = await operator.list()
    assert (active.space_id, active.model, active.dimensions) == (ACTIVE.id, "words", 256)
    assert (active.status, active.available) == (pb.SPACE_STATUS_ACTIVE, True)
    assert (building.filled, building.waiting, building.failed) == (len(CHUNKS), 0, 0)
    assert (building.indexed, building.eta_s) == (True, 0)
    assert building.created_at.ToSeconds() > active.created_at.ToSeconds()
    assert not building.HasField("activated_at")

    report = await operator.check(space_id=WIDE)
    assert (report.queries, report.judged, report.recall_active, report.recall_candidate) == (50, 50, 1, 1)
    activated = await operator.activate(space_id=WIDE)
    assert activated.report == report
    assert (activated.space.space_id, activated.space.status) == (WIDE, pb.SPACE_STATUS_ACTIVE)
    active, retired = await operator.list()
    assert (active.space_id, retired.space_id) == (WIDE, ACTIVE.id)
    assert retired.retired_at == active.activated_at

    assert (await operator.rollback()).space_id == ACTIVE.id
    assert (await operator.drop(space_id=WIDE)).space_id == WIDE
    assert [space.space_id for space in await operator.list()] == [ACTIVE.id]


async def test_judged_queries_travel(operator: Operator, store: SpacesInMemory) -> None:
    await operator.create(model="more-words", dimensions=64)
    store.fill("more_words_64")
    queries = [
        pb.JudgedQuery(query="topic7", relevant=["source-7", "source-1000"]),
        pb.JudgedQuery(query="topic8"),
    ]
    report = await operator.check(space_id="more_words_64", queries=queries)
    assert (report.queries, report.judged, report.recall_active) == (2, 1, 0.5)


async def test_a_cut_model_is_warned_of(operator: Operator) -> None:
    created = await operator.create(model="words", dimensions=128)
    assert (created.space.space_id, created.space.dimensions) == ("words_128", 128)
    assert len(created.warnings) == 1


@pytest.mark.parametrize("roles", [[], ["editor"], [f"team:{TEAM}:admin"], ["Admin"]], ids=str)
async def test_every_call_takes_the_role_admin(channel: grpc.aio.Channel, roles: list[str]) -> None:
    somebody = Operator(channel, token(roles=roles))
    for call in (
        somebody.list(),
        somebody.create(model="more-words"),
        somebody.check(space_id=WIDE),
        somebody.activate(space_id=WIDE),
        somebody.rollback(),
        somebody.drop(space_id=WIDE),
    ):
        assert await refused(call) == (grpc.StatusCode.PERMISSION_DENIED, "NOT_AN_ADMIN")


async def test_without_a_token_nobody_is_an_admin(channel: grpc.aio.Channel) -> None:
    code, _ = await refused(Operator(channel, None).list())
    assert code is grpc.StatusCode.UNAUTHENTICATED


async def test_where_authentication_is_off_the_local_user_operates(store: SpacesInMemory) -> None:
    servicer = SpaceServicer()
    servicer.open(store, word_models())
    async with serving_spaces(servicer, OFF) as target, grpc.aio.insecure_channel(target) as channel:
        assert len(await Operator(channel, None).list()) == 1


async def test_while_the_model_loads_spaces_are_unavailable() -> None:
    async with serving_spaces(SpaceServicer(), OFF) as target, grpc.aio.insecure_channel(target) as channel:
        assert await refused(Operator(channel, None).list()) == (grpc.StatusCode.UNAVAILABLE, "MODEL_LOADING")


async def test_each_refusal_has_its_status_and_reason(operator: Operator, store: SpacesInMemory) -> None:
    invalid, missing = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
    precondition = grpc.StatusCode.FAILED_PRECONDITION
    assert await refused(operator.create(model="unheard-of")) == (invalid, "UNKNOWN_MODEL")
    assert await refused(operator.create(model="words", dimensions=257)) == (invalid, "BAD_DIMENSIONS")
    assert await refused(operator.create(model="words")) == (grpc.StatusCode.ABORTED, "SPACE_EXISTS")
    for call in (operator.check, operator.activate, operator.drop):
        assert await refused(call(space_id="nowhere_8")) == (missing, "SPACE_NOT_FOUND")
        assert await refused(call(space_id="")) == (missing, "SPACE_NOT_FOUND")
    assert await refused(operator.drop(space_id=ACTIVE.id)) == (precondition, "SPACE_IS_ACTIVE")
    assert await refused(operator.rollback()) == (precondition, "NOTHING_TO_ROLL_BACK_TO")

    await operator.create(model="blind")
    for call in (operator.check, operator.activate):
        assert await refused(call(space_id="blind_8")) == (precondition, "SPACE_FILLING")
    store.fill("blind_8")
    assert await refused(operator.activate(space_id="blind_8")) == (precondition, "SHADOW_CHECK_FAILED")
    too_many = [pb.JudgedQuery(query="q")] * 201
    assert await refused(operator.check(space_id="blind_8", queries=too_many)) == (invalid, "BAD_TEXT_COUNT")
    await operator.create(model="more-words")
    store.fill(WIDE, failed=1)
    assert await refused(operator.activate(space_id=WIDE)) == (precondition, "SPACE_INCOMPLETE")
    assert (await operator.activate(space_id=WIDE, force=True)).space.space_id == WIDE
