from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from kbmesh.auth import Principal
from kbmesh.errors import TooLarge

if TYPE_CHECKING:
    from services.ingest.entrypoints.http.app import Gateway

MAX_JSON_BYTES = 64 * 1024

_bearer = HTTPBearer(auto_error=False, description="A JWT; not needed where authentication is off.")


def gateway_of(request: Request) -> "Gateway":
    gateway: Gateway = request.app.state.gateway
    return gateway


async def _principal(request: Request, _: Annotated[Any, Depends(_bearer)]) -> Principal:
    return await gateway_of(request).authenticator.authenticate(request.headers.get("authorization"))


async def _small_body(request: Request) -> None:
    """Refuses a JSON body that is longer than any honest one before it is read."""
    length = request.headers.get("content-length")
    if length is None or not length.isdecimal() or int(length) > MAX_JSON_BYTES:
        raise TooLarge(f"a JSON body is at most {MAX_JSON_BYTES} bytes and says its Content-Length")


Caller = Annotated[Principal, Depends(_principal)]
SmallBody = Depends(_small_body)
