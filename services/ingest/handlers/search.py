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
    if search is None:
        raise Unavailable("this gateway has no search service to ask", code="search_unavailable")
    return await search.kb_search(authorization, asked, explain=explain)
