"""What every gRPC server of the platform does around its handlers."""

import asyncio
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from pydantic import SecretStr

from kbmesh import errors
from kbmesh.auth import AuthMode, AuthSettings
from kbmesh.embedding.v1 import embedding_pb2 as pb
from kbmesh.rpc import ChannelSettings, GrpcSettings, open_channel, serve
from tests.support.rpc import (
    OFF,
    SERVICE,
    TIMEOUT_S,
    Handle,
    answer,
    embed,
    failure,
    raising,
    raw_call,
    reason_of,
    registering,
    served,
)

HS256 = AuthSettings(mode=AuthMode.HS256, secret=SecretStr("a secret of thirty-two bytes or more"))
# Its stubs say that its classes cannot be called.
pb_reflection: Any = reflection_pb2


async def test_an_answer_comes_back() -> None:
    async with served(answer) as (_, channel):
        assert (await embed(channel)).model == "m"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidArgument("no text", code="empty_text"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.TooLarge("too much"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.UnsupportedType("what is it"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.Unauthenticated("who are you"), grpc.StatusCode.UNAUTHENTICATED),
        (errors.PermissionDenied("not yours"), grpc.StatusCode.PERMISSION_DENIED),
        (errors.NotFound("größer gesucht"), grpc.StatusCode.NOT_FOUND),
        (errors.Conflict("again"), grpc.StatusCode.ABORTED),
        (errors.PreconditionFailed("seen before"), grpc.StatusCode.FAILED_PRECONDITION),
        (errors.ResourceExhausted("full"), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (errors.DeadlineExceeded("slow"), grpc.StatusCode.DEADLINE_EXCEEDED),
        (errors.Unavailable("down", code="database_unavailable"), grpc.StatusCode.UNAVAILABLE),
        (errors.Poison("no"), grpc.StatusCode.INTERNAL),
    ],
    ids=lambda value: getattr(value, "code", None),
)
async def test_a_typed_error_becomes_a_status_with_its_code(
    error: errors.KbmeshError, code: grpc.StatusCode
) -> None:
    async with served(raising(error)) as (_, channel):
        raised = await failure(embed(channel))
    assert (raised.code(), raised.details()) == (code, error.detail)
    assert reason_of(raised) == error.code.upper()


async def test_an_unexpected_error_tells_the_caller_nothing() -> None:
    async with served(raising(ZeroDivisionError("secret text"))) as (_, channel):
        raised = await failure(embed(channel))
        assert raised.code() is grpc.StatusCode.INTERNAL
        assert "secret" not in repr(raised)
        assert "ZeroDivision" not in repr(raised)
        assert reason_of(raised) == "INTERNAL"


async def test_a_call_after_a_failed_one_works() -> None:
    failed = False

    async def fail_once(request: pb.EmbedRequest) -> pb.EmbedResponse:
        nonlocal failed
        if not failed:
            failed = True
            raise ZeroDivisionError
        return await answer(request)

    async with served(fail_once) as (_, channel):
        await failure(embed(channel))
        assert (await embed(channel)).model == "m"


def slow(cancelled: asyncio.Event) -> Handle:
    async def handle(request: pb.EmbedRequest) -> pb.EmbedResponse:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
        return pb.EmbedResponse()

    return handle


async def test_work_ends_with_the_deadline_of_the_caller() -> None:
    cancelled = asyncio.Event()
    async with served(slow(cancelled)) as (_, channel):
        raised = await failure(embed(channel, timeout_s=0.2))
        assert raised.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await asyncio.wait_for(cancelled.wait(), 5)


@pytest.mark.parametrize("timeout_s", [None, 60])
async def test_work_ends_with_the_deadline_of_the_server(timeout_s: float | None) -> None:
    cancelled = asyncio.Event()
    async with served(slow(cancelled), max_deadline_s=0.2) as (_, channel):
        raised = await failure(embed(channel, timeout_s=timeout_s))
        assert raised.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert reason_of(raised) == "DEADLINE_EXCEEDED"
        assert cancelled.is_set()


async def test_a_timeout_inside_the_handler_is_not_told_as_an_internal_error() -> None:
    async with served(raising(TimeoutError())) as (_, channel):
        raised = await failure(embed(channel))
    assert raised.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_the_server_is_not_healthy_until_it_says_so_and_needs_no_token_to_tell() -> None:
    async with served(answer, auth=HS256) as (server, channel):
        stub: Any = health_pb2_grpc.HealthStub(channel)

        async def status(service: str) -> int:
            checked = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S)
            return int(checked.status)

        for service in ("", SERVICE):
            assert await status(service) == health_pb2.HealthCheckResponse.NOT_SERVING
        await server.set_serving(True)
        for service in ("", SERVICE):
            assert await status(service) == health_pb2.HealthCheckResponse.SERVING
        unknown = await failure(status("kbmesh.unknown"))
        assert unknown.code() is grpc.StatusCode.NOT_FOUND


async def test_tools_can_ask_what_is_served() -> None:
    async with served(answer, auth=HS256) as (_, channel):
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(cast(grpc.Channel, channel))
        request = pb_reflection.ServerReflectionRequest(list_services="")
        [response] = [found async for found in stub.ServerReflectionInfo(iter([request]), timeout=TIMEOUT_S)]
    names = {service.name for service in response.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= names


async def test_a_method_that_does_not_exist_is_unimplemented() -> None:
    async with served(answer) as (_, channel):
        raised = await failure(raw_call(channel, "Nothing", b""))
    assert raised.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_bytes_that_are_no_request_are_refused_and_the_server_goes_on() -> None:
    async with served(answer) as (_, channel):
        raised = await failure(raw_call(channel, "Embed", b"\xff\xff"))
        assert (raised.code(), reason_of(raised)) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST")
        assert (await embed(channel)).model == "m"


async def test_a_message_over_the_limit_is_refused() -> None:
    called = False

    async def handle(request: pb.EmbedRequest) -> pb.EmbedResponse:
        nonlocal called
        called = True
        return pb.EmbedResponse()

    async with served(handle, max_message_bytes=10_000) as (_, channel):
        raised = await failure(embed(channel, texts=["x" * 20_000]))
        assert raised.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert not called
        await embed(channel, texts=["x" * 5_000])
    assert called


async def test_calls_over_the_limit_are_refused_at_once() -> None:
    release = asyncio.Event()
    began = asyncio.Event()

    async def handle(request: pb.EmbedRequest) -> pb.EmbedResponse:
        began.set()
        await release.wait()
        return pb.EmbedResponse()

    async with served(handle, max_concurrent_calls=1) as (_, channel):
        first = asyncio.ensure_future(embed(channel))
        await asyncio.wait_for(began.wait(), 5)
        raised = await failure(embed(channel))
        assert raised.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        release.set()
        await first


async def test_a_port_that_is_taken_is_said() -> None:
    async with served(answer) as (server, _):
        with pytest.raises(errors.Misconfigured) as caught:
            async with served(answer, port=server.port):
                pass
    assert caught.value.code == "port_taken"
    assert str(server.port) in caught.value.detail


async def test_a_call_under_way_is_finished_when_the_server_stops() -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def handle(request: pb.EmbedRequest) -> pb.EmbedResponse:
        began.set()
        await release.wait()
        return pb.EmbedResponse(model="m")

    serving = serve(GrpcSettings(), OFF, registering(handle), [SERVICE])
    server = await serving.__aenter__()
    async with open_channel(ChannelSettings(target=f"127.0.0.1:{server.port}")) as channel:
        call = asyncio.ensure_future(embed(channel))
        await asyncio.wait_for(began.wait(), 5)
        stopping = asyncio.ensure_future(serving.__aexit__(None, None, None))
        await asyncio.sleep(0)
        release.set()
        assert (await call).model == "m"
        await stopping


async def test_a_channel_to_nobody_fails_within_the_timeout_and_not_before_it_is_used(unused_port: int) -> None:
    async with open_channel(ChannelSettings(target=f"127.0.0.1:{unused_port}")) as channel:
        raised = await failure(embed(channel, timeout_s=2))
    assert raised.code() is grpc.StatusCode.UNAVAILABLE
    assert reason_of(raised) is None


@pytest.fixture
async def unused_port() -> int:
    async with served(answer) as (server, _):
        return server.port
