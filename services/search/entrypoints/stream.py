import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Final

from kbmesh.errors import InvalidArgument
from kbmesh.rpc import failure_of
from kbmesh.rpc.status import code_for, reason_for
from kbmesh.search.v1 import search_pb2

IN_FLIGHT: Final = 4
"""Of one stream: with two connections each, most of a pool, so that others find one."""
MAX_ID_LENGTH: Final = 200

Search = Callable[[search_pb2.KbSearchRequest], Awaitable[search_pb2.KbSearchResponse]]


async def answers(
    requests: AsyncIterator[search_pb2.StreamSearchRequest], search: Search
) -> AsyncGenerator[search_pb2.StreamSearchResponse, None]:
    """What `search` makes of each request, as they get ready.

    A request is read only while fewer than IN_FLIGHT are worked on and the answers are taken away. On closing,
    what is under way is cancelled.

    Raises:
        KbmeshError: as the requests do.
    """
    reading: asyncio.Task[search_pb2.StreamSearchRequest | None] | None = None
    working: set[asyncio.Task[search_pb2.StreamSearchResponse]] = set()
    more = True
    try:
        while more or working:
            if more and reading is None and len(working) < IN_FLIGHT:
                reading = asyncio.create_task(_next(requests))
            await asyncio.wait(
                working if reading is None else {reading, *working}, return_when=asyncio.FIRST_COMPLETED
            )
            if reading is not None and reading.done():
                request, reading = reading.result(), None
                if request is None:
                    more = False
                else:
                    working.add(asyncio.create_task(_answer(request, search)))
            for ready in [task for task in working if task.done()]:
                working.remove(ready)
                yield ready.result()
    finally:
        under_way = [*working] if reading is None else [reading, *working]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _next(requests: AsyncIterator[search_pb2.StreamSearchRequest]) -> search_pb2.StreamSearchRequest | None:
    return await anext(requests, None)


async def _answer(request: search_pb2.StreamSearchRequest, search: Search) -> search_pb2.StreamSearchResponse:
    try:
        if len(request.id) > MAX_ID_LENGTH:
            raise InvalidArgument(f"the id of a request has at most {MAX_ID_LENGTH} characters", code="invalid_id")
        return search_pb2.StreamSearchResponse(id=request.id, answer=await search(request.search))
    except Exception as error:
        failure = failure_of(error, "StreamSearch")
    return search_pb2.StreamSearchResponse(
        id=request.id[:MAX_ID_LENGTH],
        failure=search_pb2.StreamSearchFailure(
            code=code_for(failure), message=failure.detail, reason=reason_for(failure)
        ),
    )
