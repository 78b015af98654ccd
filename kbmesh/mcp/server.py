"""The MCP server itself, whatever carries its messages. Protocol: https://modelcontextprotocol.io/specification"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final
from uuid import UUID

import grpc
import structlog
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import ValidationError

from kbmesh import tools
from kbmesh.errors import InvalidArgument, KbmeshError
from kbmesh.rpc import ChannelSettings, metadata_for, open_channel
from kbmesh.rpc.status import to_error
from kbmesh.search.v1 import search_pb2
from kbmesh.search.v1.search_pb2_grpc import SearchServiceStub
from kbmesh.tiers import tier_from_proto
from kbmesh.tools.request import to_request

log = structlog.get_logger(__name__)

Context = ServerRequestContext[grpc.aio.Channel, Any]
McpServer = Server[grpc.aio.Channel]

_MAX_PROBLEMS: Final = 5

_DEFINITION: Final = tools.definition()
_TOOL: Final = Tool(
    name=_DEFINITION.name,
    title="Search the knowledge base",
    description=_DEFINITION.description,
    input_schema=_DEFINITION.input_schema,
    output_schema=tools.KbSearchResult.model_json_schema(),
    annotations=ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    ),
)


def create_server(search: ChannelSettings, authorization_of: Callable[[Context], str | None]) -> McpServer:
    """A server with the tool `kb_search`.

    Args:
        search: the search service; calls take at most its `timeout_s`.
        authorization_of: the Authorization header in whose name a tool is called. Search decides by it.
    """

    @asynccontextmanager
    async def lifespan(_: McpServer) -> AsyncIterator[grpc.aio.Channel]:
        async with open_channel(search) as channel:
            yield channel

    async def list_tools(_: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_TOOL])

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        if params.name != _TOOL.name:
            raise MCPError(INVALID_PARAMS, f"no such tool; there is {_TOOL.name}")
        try:
            result = await _kb_search(
                context.lifespan_context,
                authorization_of(context),
                params.arguments or {},
                timeout_s=search.timeout_s,
            )
        except KbmeshError as error:
            return _failure(error)
        except Exception as error:
            log.exception("tool_failed", error=type(error).__name__)
            return _failure(KbmeshError("internal error; the log has the details"))
        return CallToolResult(
            content=[TextContent(text=tools.render(result))], structured_content=result.model_dump(mode="json")
        )

    return Server(
        "kbmesh",
        version=version("kbmesh"),
        title="kbmesh",
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _kb_search(
    channel: grpc.aio.Channel, authorization: str | None, arguments: Mapping[str, Any], *, timeout_s: float
) -> tools.KbSearchResult:
    """
    Raises:
        InvalidArgument: invalid_request, for arguments that the schema does not allow.
        KbmeshError: as the search service says; Unavailable: search_unavailable.
    """
    try:
        asked = tools.KbSearchArguments.model_validate(arguments)
    except ValidationError as error:
        problems = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors()[:_MAX_PROBLEMS]]
        detail = "; ".join(f"{field[:80]}: {problem}" for field, problem in problems)
        raise InvalidArgument(detail, code="invalid_request") from None
    request = to_request(asked)
    try:
        response = await SearchServiceStub(channel).KbSearch(
            request, timeout=timeout_s, metadata=metadata_for(authorization)
        )
    except grpc.aio.AioRpcError as error:
        raise to_error(error, "search") from error
    return tools.KbSearchResult(
        passages=[_passage(passage) for passage in response.passages], degraded=response.degraded
    )


def _passage(passage: search_pb2.Passage) -> tools.Passage:
    citation = passage.citation
    return tools.Passage(
        label=passage.label,
        tier=tier_from_proto(passage.tier),
        content=passage.content,
        citation=tools.Citation(
            document_id=UUID(passage.document_id),
            filename=passage.filename,
            page=citation.page if citation.HasField("page") else None,
            headings=list(citation.headings),
        ),
        score=passage.score.value,
    )


def _failure(error: KbmeshError) -> CallToolResult:
    """For the model, which may do better with other arguments; the text begins with the code."""
    return CallToolResult(content=[TextContent(text=str(error))], is_error=True)
