import sys

from mcp.server.stdio import stdio_server

from kbmesh.mcp.server import create_server
from kbmesh.observability import configure_logging
from kbmesh.rpc import ChannelSettings


async def run_stdio(search: ChannelSettings, token: str | None) -> None:
    """Serves one client on stdin and stdout, in the name of `token`, until it closes stdin; logs go to stderr."""
    configure_logging("mcp", stream=sys.stderr)
    authorization = f"Bearer {token}" if token else None
    server = create_server(search, lambda _: authorization)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
