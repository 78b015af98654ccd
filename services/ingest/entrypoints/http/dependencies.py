from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from kbmesh.auth import Principal
from kbmesh.errors import TooLarge, Unavailable

if TYPE_CHECKING:
    from services.ingest.entrypoints.http.app import Gateway

MAX_JSON_BYTES = 64 * 1024

_bearer = HTTPBearer(auto_error=False, description="A JWT; not needed where authentication is off.")


def gateway_of(request: Request) -> "Gateway":
    gateway: Gateway = request.app.state.gateway
    return gateway


async def _principal(request: Request, _: Annotated[Any, Depends(_bearer)]) -> Principal:
    return await gateway_of(request).authenticator.authenticate(request.headers.get("authorization"))


async def _writer(request: Request, caller: Annotated[Principal, Depends(_principal)]) -> Principal:
    if not gateway_of(request).writable:
        raise Unavailable(
            "knowledge bases are switched off: they can be read, not changed", code="knowledge_bases_disabled"
        )
    return caller


async def _uploader(request: Request, writer: Annotated[Principal, Depends(_writer)]) -> Principal:
    await gateway_of(request).embedding.require()
    return writer


async def _small_body(request: Request) -> None:
    """Refuses a JSON body that is longer than any honest one before it is read."""
    length = request.headers.get("content-length")
    if length is None or not length.isdecimal() or int(length) > MAX_JSON_BYTES:
        raise TooLarge(f"a JSON body is at most {MAX_JSON_BYTES} bytes and says its Content-Length")


Caller = Annotated[Principal, Depends(_principal)]
Writer = Annotated[Principal, Depends(_writer)]
"""The caller of a route that changes something: refused while knowledge bases are switched off."""
Uploader = Annotated[Principal, Depends(_uploader)]
"""The caller of a route that takes a document in: refused while nothing could embed it."""
SmallBody = Depends(_small_body)
