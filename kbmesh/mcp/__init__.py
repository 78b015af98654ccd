"""The Model Context Protocol: `kb_search` for assistants and editors, in the name of whoever asks."""

from kbmesh.mcp.http import McpSettings, serve
from kbmesh.mcp.stdio import run_stdio

__all__ = ["McpSettings", "run_stdio", "serve"]
