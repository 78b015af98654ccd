"""Following documents as they change: who watches what, and what to tell each of them."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from kbmesh.auth import Principal
from kbmesh.errors import NotFound, ResourceExhausted, Unauthenticated, Unavailable
from services.ingest.domain.models import Document
from services.ingest.handlers.documents import get_document
from services.ingest.handlers.knowledge_bases import get_knowledge_base
from services.ingest.ports import Documents, KnowledgeBases

PAGE: Final = 200
MAX_NAMED: Final = 200


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """Times in seconds."""

    per_process: int = 256
    per_principal: int = 16
    heartbeat_s: float = 15
    reread_s: float = 60
    pause_s: float = 0.2


@dataclass(frozen=True, slots=True)
class Gone:
    """It was deleted, or the caller may no longer see it: the two look alike. The target's own ends the stream."""

    id: UUID


@dataclass(frozen=True, slots=True)
class Complete:
    """Everything there was when the stream began has been told."""


@dataclass(frozen=True, slots=True)
class Alive:
    """Nothing has changed for a while."""


Told = Document | Gone | Complete | Alive


@dataclass(slots=True, eq=False)
class Watch:
    """What one stream has to read again."""

    target: UUID
    ended: bool = False
    _named: set[UUID] | None = None
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def changed(self, document_id: UUID | None) -> None:
        """None: any of them."""
        if document_id is None or (self._named is not None and len(self._named) >= MAX_NAMED):
            self._named = None
        elif self._named is not None:
            self._named.add(document_id)
        self._woken.set()

    def take(self) -> list[UUID] | None:
        """The documents to read again, None for all of them; forgets them. At first all."""
        named, self._named = self._named, set()
        self._woken.clear()
        return None if named is None else sorted(named)

    def put_back(self) -> None:
        """What was taken could not be read."""
        self._named = None

    def end(self) -> None:
        self.ended = True
        self._woken.set()

    async def wait(self, timeout_s: float) -> bool:
        """Until there is something to read again, or the end; False: neither came in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                if not self.ended:
                    await self._woken.wait()
                return True
        return False


class Watches:
    """The open streams of this process, by the knowledge base or document that they follow."""

    def __init__(self, limits: WatchLimits) -> None:
        self.limits = limits
        self._by_target: defaultdict[UUID, set[Watch]] = defaultdict(set)
        self._by_principal: Counter[UUID] = Counter()
        self._closed = False

    @property
    def count(self) -> int:
        return self._by_principal.total()

    @contextmanager
    def open(self, principal: Principal, target: UUID) -> Iterator[Watch]:
        """
        Raises:
            ResourceExhausted: as many streams are open as may be, in this process or of this caller.
            Unavailable: the process is about to stop.
        """
        if self._closed:
            raise Unavailable("this process is stopping; connect again", code="stopping")
        if self._by_principal[principal.sub] >= self.limits.per_principal:
            raise ResourceExhausted("you have too many event streams open", code="too_many_streams")
        if self.count >= self.limits.per_process:
            raise ResourceExhausted("too many event streams are open", code="too_many_streams")
        watch = Watch(target)
        self._by_target[target].add(watch)
        self._by_principal[principal.sub] += 1
        try:
            yield watch
        finally:
            self._by_target[target].discard(watch)
            if not self._by_target[target]:
                del self._by_target[target]
            self._by_principal[principal.sub] -= 1
            if not self._by_principal[principal.sub]:
                del self._by_principal[principal.sub]

    def changed(self, kb_id: UUID, document_id: UUID | None) -> None:
        for target in (kb_id, document_id):
            for watch in self._by_target.get(target, ()) if target else ():
                watch.changed(document_id)

    def changed_unheard(self) -> None:
        """Anything may have changed."""
        for watch in self._all():
            watch.changed(None)

    def close(self) -> None:
        """Ends every stream and lets no new one begin."""
        self._closed = True
        for watch in self._all():
            watch.end()

    def _all(self) -> list[Watch]:
        return [watch for watches in self._by_target.values() for watch in watches]


Pages = Callable[[Principal, Sequence[UUID] | None], AsyncIterator[list[Document]]]


def documents_of(knowledge_bases: KnowledgeBases, documents: Documents, kb_id: UUID) -> Pages:
    """Reads the documents of a knowledge base; raises NotFound when it is not there to see."""

    async def pages(principal: Principal, only: Sequence[UUID] | None) -> AsyncIterator[list[Document]]:
        await get_knowledge_base(knowledge_bases, principal, kb_id)
        after = None
        while True:
            page = await documents.states(principal, kb_id, only=only, after=after, limit=PAGE)
            yield page
            if len(page) < PAGE:
                return
            after = page[-1].created_at, page[-1].id

    return pages


def one_document(documents: Documents, document_id: UUID) -> Pages:
    """Reads that document; raises NotFound when it is not there to see."""

    async def pages(principal: Principal, _: Sequence[UUID] | None) -> AsyncIterator[list[Document]]:
        yield [await get_document(documents, principal, document_id)]

    return pages


async def follow(
    watch: Watch, read: Pages, authenticate: Callable[[], Awaitable[Principal]], limits: WatchLimits
) -> AsyncIterator[Told]:
    """What is there, then what changes, until the target is gone, the caller's token no longer holds, or the end.

    Access is a part of every read, for the principal that the token proves at that moment. A notification only
    says what to read again; everything is read again after `reread_s`, for one that got lost.
    """
    told: dict[UUID, datetime] = {}
    complete = False
    loop = asyncio.get_running_loop()
    read_all_at = loop.time()
    while not watch.ended:
        try:
            principal = await authenticate()
            if loop.time() >= read_all_at:
                watch.changed(None)
            only = watch.take()
            if only is None:
                read_all_at = loop.time() + limits.reread_s
            if only is None or only:
                missing = set(told) if only is None else told.keys() & only
                async for page in read(principal, only):
                    for document in page:
                        missing.discard(document.id)
                        if told.get(document.id) != document.updated_at:
                            told[document.id] = document.updated_at
                            yield document
                for document_id in sorted(missing):
                    del told[document_id]
                    yield Gone(document_id)
            if not complete:
                complete = True
                yield Complete()
        except Unauthenticated:
            return
        except NotFound:
            yield Gone(watch.target)
            return
        except Unavailable:
            watch.put_back()
        await asyncio.sleep(limits.pause_s)
        if not await watch.wait(limits.heartbeat_s):
            yield Alive()
