"""How the searches of a stream are read, worked on and answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field

from kbmesh.search.v1 import search_pb2
from services.search.entrypoints.stream import IN_FLIGHT, answers


@dataclass
class Searches:
    """Requests that count how many were read, and a search that answers when the test says so."""

    texts: list[str]
    read: int = 0
    begun: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    ready: dict[str, asyncio.Event] = field(init=False)

    def __post_init__(self) -> None:
        self.ready = {text: asyncio.Event() for text in self.texts}

    async def requests(self) -> AsyncIterator[search_pb2.StreamSearchRequest]:
        for text in self.texts:
            self.read += 1
            yield search_pb2.StreamSearchRequest(id=text, search=search_pb2.KbSearchRequest(query=text))

    async def search(self, request: search_pb2.KbSearchRequest) -> search_pb2.KbSearchResponse:
        self.begun.append(request.query)
        try:
            await self.ready[request.query].wait()
        except asyncio.CancelledError:
            self.cancelled.append(request.query)
            raise
        return search_pb2.KbSearchResponse()


async def settled() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_answers_come_as_they_get_ready() -> None:
    searches = Searches(["slow", "quick"])
    searches.ready["quick"].set()
    found = []

    async with aclosing(answers(searches.requests(), searches.search)) as stream:
        async for answer in stream:
            found.append(answer.id)
            searches.ready["slow"].set()

    assert found == ["quick", "slow"]


async def test_no_more_is_read_than_is_worked_on() -> None:
    searches = Searches([str(number) for number in range(3 * IN_FLIGHT)])
    async with aclosing(answers(searches.requests(), searches.search)) as stream:
        first = asyncio.ensure_future(anext(stream))
        await settled()
        assert searches.read == len(searches.begun) == IN_FLIGHT
        for ready in searches.ready.values():
            ready.set()

        assert (await first).id in searches.begun
        await settled()
        assert searches.read == IN_FLIGHT, "an answer that nobody takes away leaves no room for another"
        assert len([answer async for answer in stream]) == 3 * IN_FLIGHT - 1


async def test_what_is_under_way_ends_with_the_stream() -> None:
    searches = Searches(["a", "b", "c"])
    searches.ready["a"].set()

    async with aclosing(answers(searches.requests(), searches.search)) as stream:
        assert (await anext(stream)).id == "a"
        await settled()

    assert sorted(searches.cancelled) == sorted(set(searches.begun) - {"a"})
