from collections.abc import Mapping
from typing import Any

from kbmesh.errors import Unavailable
from kbmesh.tools import KbSearchArguments
from services.ingest.domain.search import SearchAnswer
from services.ingest.ports import Search


async def kb_search(
    search: Search | None, authorization: str | None, asked: KbSearchArguments, *, explain: bool
) -> SearchAnswer:
    """Asks the search service in the name of the caller; what the caller may see is decided there.

    Raises:
        Unavailable: it does not answer, or this gateway knows none.
        InvalidArgument and the others of the search service, with its codes.
    """
    return await _known(search).kb_search(authorization, asked, explain=explain)


async def retrieve_context(
    search: Search | None, authorization: str | None, question: Mapping[str, Any]
) -> Mapping[str, Any]:
    """As kb_search, of RetrieveContext, in the words of its contract."""
    return await _known(search).retrieve_context(authorization, question)


async def assemble_context(
    search: Search | None, authorization: str | None, question: Mapping[str, Any]
) -> Mapping[str, Any]:
    """As kb_search, of AssembleContext, in the words of its contract."""
    return await _known(search).assemble_context(authorization, question)


def _known(search: Search | None) -> Search:
    if search is None:
        raise Unavailable("this gateway has no search service to ask", code="search_unavailable")
    return search
