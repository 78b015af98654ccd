"""Whose call it is, and how that travels with it."""

import asyncio
import time
from typing import Any

import grpc
import jwt
import pytest
from pydantic import SecretStr

from kbmesh import errors
from kbmesh.auth import LOCAL_PRINCIPAL, AuthMode, AuthSettings, Principal
from kbmesh.embedding.v1 import embedding_pb2 as pb
from kbmesh.observability import tracing
from kbmesh.rpc import current_principal, forwarded_metadata
from tests.support.rpc import answer, embed, failure, reason_of, served

SECRET = "a secret of thirty-two bytes or more"
HS256 = AuthSettings(mode=AuthMode.HS256, secret=SecretStr(SECRET))
SUB = "0190d4a0-0000-7000-8000-000000000001"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


def bearer(**changes: Any) -> tuple[tuple[str, str], ...]:
    claims = {"sub": SUB, "aud": "kbmesh", "exp": int(time.time()) + 300} | changes
    return (("authorization", f"Bearer {jwt.encode(claims, SECRET, 'HS256')}"),)


async def test_without_a_token_there_is_no_answer() -> None:
    async with served(answer, auth=HS256) as (_, channel):
        raised = await failure(embed(channel))
    assert raised.code() is grpc.StatusCode.UNAUTHENTICATED
    assert reason_of(raised) == "TOKEN_MISSING"


async def test_with_a_bad_token_there_is_no_answer() -> None:
    async with served(answer, auth=HS256) as (_, channel):
        expired = await failure(embed(channel, metadata=bearer(exp=1)))
        garbage = await failure(embed(channel, metadata=(("authorization", "Bearer garbage"),)))
    assert (expired.code(), reason_of(expired)) == (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_EXPIRED")
    assert (garbage.code(), reason_of(garbage)) == (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_INVALID")


async def test_each_handler_sees_its_own_caller_trace_and_token() -> None:
    seen: dict[str, tuple[Principal, str | None, dict[str, str]]] = {}
    both = asyncio.Barrier(2)

    async def handle(request: pb.EmbedRequest) -> pb.EmbedResponse:
        await asyncio.wait_for(both.wait(), 5)
        seen[request.texts[0]] = (current_principal(), tracing.current_trace_id(), dict(forwarded_metadata()))
        return pb.EmbedResponse()

    first, second = bearer(), bearer(sub=str(LOCAL_PRINCIPAL.sub), roles=["admin"])
    trace = (("traceparent", f"00-{TRACE_ID}-b7ad6b7169203331-01"),)
    async with served(handle, auth=HS256) as (_, channel):
        await asyncio.gather(
            embed(channel, texts=["first"], metadata=first + trace),
            embed(channel, texts=["second"], metadata=second),
        )

    principal, trace_id, forwarded = seen["first"]
    assert str(principal.sub) == SUB
    assert trace_id == TRACE_ID
    assert forwarded["authorization"] == first[0][1]
    assert forwarded["traceparent"].split("-")[1] == TRACE_ID
    principal, trace_id, forwarded = seen["second"]
    assert principal == Principal(LOCAL_PRINCIPAL.sub, roles=frozenset({"admin"}))
    assert trace_id not in (None, TRACE_ID)
    assert forwarded["authorization"] == second[0][1]


async def test_with_authentication_off_the_caller_is_the_local_user() -> None:
    seen: list[tuple[Principal, dict[str, str]]] = []

    async def handle(request: pb.EmbedRequest) -> pb.EmbedResponse:
        seen.append((current_principal(), dict(forwarded_metadata())))
        return pb.EmbedResponse()

    async with served(handle) as (_, channel):
        await embed(channel)
    [(principal, forwarded)] = seen
    assert principal == LOCAL_PRINCIPAL
    assert "authorization" not in forwarded


async def test_without_authentication_only_loopback_is_served() -> None:
    with pytest.raises(errors.Misconfigured):
        async with served(answer, host="0.0.0.0"):  # noqa: S104
            pass
