import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Final

import grpc
import structlog
from google.protobuf.message import DecodeError

from kbmesh.auth import Authenticator, Principal
from kbmesh.errors import DeadlineExceeded, InvalidArgument, KbmeshError
from kbmesh.observability import tracing
from kbmesh.rpc.status import to_status

log = structlog.get_logger(__name__)

_principal: ContextVar[Principal] = ContextVar("principal")
_authorization: ContextVar[str | None] = ContextVar("authorization", default=None)

# Probes and tools ask these before they have a token; they tell nothing about data.
OPEN_SERVICES: Final = ("/grpc.health.v1.Health/", "/grpc.reflection.")


def current_principal() -> Principal:
    """Who makes the current call."""
    return _principal.get()


def forwarded_metadata() -> tuple[tuple[str, str], ...]:
    """Metadata for a call to another service on behalf of the current caller: the token and the trace."""
    return metadata_for(_authorization.get())


def metadata_for(authorization: str | None) -> tuple[tuple[str, str], ...]:
    """Metadata for a call on behalf of who sent this Authorization header: the header and the current trace."""
    # With authentication off nobody has looked at the header, and gRPC takes no others than these.
    said = authorization is not None and authorization.isascii() and authorization.isprintable()
    identity = (("authorization", authorization),) if authorization is not None and said else ()
    return identity + tuple(tracing.inject().items())


def failure_of(error: Exception, method: str) -> KbmeshError:
    """What the caller of `method` is told of `error`; what nobody foresaw goes into the log instead."""
    if isinstance(error, KbmeshError):
        return error
    if isinstance(error, TimeoutError):
        return DeadlineExceeded("the call took longer than its deadline")
    log.exception("call_failed", method=method, error=type(error).__name__)
    return KbmeshError("internal error; the log has the details")


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Around every unary call, and every stream in both directions: identity, deadline, trace, and typed errors
    turned into statuses. A stream has no deadline but its caller's, and is not read when its token has expired."""

    def __init__(self, authenticator: Authenticator, max_deadline_s: float) -> None:
        self._authenticator = authenticator
        self._max_deadline_s = max_deadline_s

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        method: str = handler_call_details.method
        if handler is None or method.startswith(OPEN_SERVICES):
            return handler
        metadata = {
            key: value for key, value in handler_call_details.invocation_metadata or () if isinstance(value, str)
        }

        async def call(raw: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            try:
                with tracing.serving(metadata, method):
                    async with asyncio.timeout(self._limit(context)):
                        await self._identify(metadata)
                        return await handler.unary_unary(_parsed(handler, raw), context)
            except Exception as error:
                return await context.abort_with_status(to_status(failure_of(error, method)))

        async def stream(raws: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> None:
            async def requests() -> AsyncIterator[Any]:
                async for raw in raws:
                    await self._identify(metadata)
                    yield _parsed(handler, raw)

            try:
                with tracing.serving(metadata, method):
                    async with asyncio.timeout(context.time_remaining()):
                        await self._identify(metadata)
                        async with aclosing(handler.stream_stream(requests(), context)) as responses:
                            async for response in responses:
                                await context.write(response)
            except Exception as error:
                await context.abort_with_status(to_status(failure_of(error, method)))

        # Where grpc parses the request, a failure is an unknown error with a traceback.
        if handler.request_streaming and handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                stream, request_deserializer=None, response_serializer=handler.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=None, response_serializer=handler.response_serializer
        )

    async def _identify(self, metadata: Mapping[str, str]) -> None:
        authorization = metadata.get("authorization")
        _principal.set(await self._authenticator.authenticate(authorization))
        _authorization.set(authorization)

    def _limit(self, context: grpc.aio.ServicerContext[Any, Any]) -> float:
        remaining = context.time_remaining()
        return self._max_deadline_s if remaining is None else min(remaining, self._max_deadline_s)


def _parsed(handler: Any, raw: bytes) -> Any:
    try:
        return handler.request_deserializer(raw)
    except DecodeError:
        raise InvalidArgument("the bytes are not a request of this method", code="bad_request") from None
