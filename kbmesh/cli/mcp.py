"""`kbmesh mcp`: the knowledge base as a tool of assistants and editors."""

import asyncio
import os
import signal
from typing import Final

import click

from kbmesh.cli.calling import TOKEN_VARIABLE
from kbmesh.process import run
from kbmesh.rpc import ChannelSettings

TIMEOUT_S: Final = 15
"""Longer than search waits for the embedder before keywords answer alone (5 s)."""


@click.command()
@click.option(
    "--transport",
    type=click.Choice(["stdio", "http"]),
    default="stdio",
    show_default=True,
    help="stdio: for the program that starts it; http: streamable HTTP, for many clients.",
)
@click.option(
    "--target",
    envvar="KBMESH_SEARCH_TARGET",
    default="127.0.0.1:50051",
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT",
    help="gRPC address of search.",
)
@click.option("--tls", is_flag=True, help="Through TLS, as when a proxy in front of search ends it.")
@click.option("--host", default="127.0.0.1", show_default=True, help="http: where to listen.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8083, show_default=True, help="http.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="http: a name in the Host and Origin headers of clients, besides those of loopback; may be repeated.",
)
def mcp(transport: str, target: str, tls: bool, host: str, port: int, allowed_hosts: tuple[str, ...]) -> None:
    """Serves the tool kb_search over the Model Context Protocol.

    stdio: searches in the name of the token in the environment variable KBMESH_TOKEN.

    http: searches in the name of each request's own bearer token, at /mcp. KBMESH_MCP_AUTH__MODE, …__SECRET and
    …__JWKS_URL say how tokens are checked, as for the services; off is for loopback alone.
    """
    try:
        # Here, for the other commands do without the extra.
        from kbmesh.http import HttpSettings
        from kbmesh.mcp import McpSettings, run_stdio, serve
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'kbmesh[mcp]'") from None
    search = ChannelSettings(target=target, tls=tls, timeout_s=TIMEOUT_S)
    if transport == "stdio":
        # As of other filters; Python's own way would wait for a line that nobody writes.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        asyncio.run(run_stdio(search, os.environ.get(TOKEN_VARIABLE)))
    else:
        listen = HttpSettings(host=host, port=port)
        run("mcp", McpSettings, lambda settings: serve(settings.auth, listen, search, allowed_hosts))
