from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from mcp.server.transport_security import TransportSecuritySettings
from pydantic_settings import BaseSettings, SettingsConfigDict
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from kbmesh.auth import Authenticator, AuthSettings, require_loopback
from kbmesh.errors import KbmeshError
from kbmesh.http import HttpSettings, Tracing, headers_of, serve_http, status_of
from kbmesh.mcp.server import Context, create_server
from kbmesh.rpc import ChannelSettings

MAX_BODY_BYTES: Final = 256 * 1024
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


class McpSettings(BaseSettings):
    """Read from KBMESH_MCP_*, as those of the services are; the rest are options of the command."""

    model_config = SettingsConfigDict(env_prefix="KBMESH_MCP_", env_nested_delimiter="__", frozen=True)

    auth: AuthSettings
    log_level: str = "info"


@asynccontextmanager
async def serve(
    auth: AuthSettings, http: HttpSettings, search: ChannelSettings, allowed_hosts: Sequence[str] = ()
) -> AsyncIterator[int]:
    """Serves streamable HTTP at /mcp, each request in the name of its own token; yields the port.

    There are no sessions, so that nobody can take up another's and any number of processes can stand side by side.

    Args:
        allowed_hosts: what the Host and Origin headers may name besides loopback, so that a web page cannot have
            its own name resolved to this server.

    Raises:
        Misconfigured: the address is taken, or auth is off on an address beyond loopback.
    """
    require_loopback(auth, http.host)
    server = create_server(search, _authorization)
    app = server.streamable_http_app(
        stateless_http=True,
        json_response=True,
        max_request_body_size=MAX_BODY_BYTES,
        transport_security=_security(allowed_hosts),
    )
    admitted = _Admission(app, Authenticator(auth))
    async with server.session_manager.run(), serve_http(Tracing(admitted), http) as port:
        yield port


class _Admission:
    """Lets requests with a valid token through, and POST alone: a server without sessions has no stream to GET."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._authenticator.authenticate(Headers(scope=scope).get("authorization"))
        except KbmeshError as error:
            status = status_of(error)
            body = {"code": error.code, "detail": error.detail}
            await JSONResponse(body, status, headers_of(status))(scope, receive, send)
            return
        if scope["method"] != "POST":
            body = {"code": "method_not_allowed", "detail": "send messages with POST"}
            await JSONResponse(body, 405, {"Allow": "POST"})(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _authorization(context: Context) -> str | None:
    return None if context.request is None else context.request.headers.get("authorization")


def _security(allowed_hosts: Sequence[str]) -> TransportSecuritySettings:
    hosts = [host for name in (*LOOPBACK, *allowed_hosts) for host in (name, f"{name}:*")]
    origins = [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts]
    return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)
