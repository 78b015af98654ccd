"""What the handlers need from the outside."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from kbmesh.auth import Principal
from kbmesh.tools import KbSearchArguments
from services.ingest.domain.content_type import ContentType
from services.ingest.domain.extraction import ChunkDraft
from services.ingest.domain.headers import Origin
from services.ingest.domain.models import (
    Channel,
    Chunk,
    Contents,
    Document,
    DocumentFilter,
    KnowledgeBase,
    OwnerType,
    Removed,
    Revision,
    StoredUpload,
)
from services.ingest.domain.records import Record, RecordDeletion, Seal
from services.ingest.domain.search import SearchAnswer
from services.ingest.domain.webhooks import Delivery, Due, EventStatus, StatusEvent, Webhook


class KnowledgeBases(Protocol):
    """Reads show a principal what it may see; all else is absent."""

    async def create(
        self, owner_type: OwnerType, owner_id: UUID, name: str, description: str
    ) -> KnowledgeBase: ...

    async def visible(self, principal: Principal, *, after: UUID | None, limit: int) -> list[KnowledgeBase]:
        """In order of creation, from behind the knowledge base `after`."""

    async def find(self, principal: Principal, kb_id: UUID) -> KnowledgeBase | None: ...

    async def contents(self, principal: Principal, kb_id: UUID) -> Contents:
        """Counts of the newest revisions; zeros where there is nothing to see."""

    async def find_default(self, principal: Principal) -> KnowledgeBase | None: ...

    async def ensure_default(self, principal: Principal, name: str) -> KnowledgeBase:
        """The principal's default knowledge base, made under `name` if there is none; never a second one."""

    async def rename(
        self, principal: Principal, kb_id: UUID, name: str | None, description: str | None
    ) -> KnowledgeBase | None:
        """Changes what is not None; None: there is none to see."""

    async def delete(self, principal: Principal, kb_id: UUID) -> Removed | None:
        """Everything in it goes in one transaction, with an event per document; None: there is none to see.

        Each deletion looks afterwards whether the database still holds anything of it.
        """


class Channels(Protocol):
    async def save(self, principal: Principal, channel: Channel) -> bool:
        """False: a knowledge base of it is not there for the principal to see, and nothing was written."""

    async def find(
        self, principal: Principal, owner_type: OwnerType, owner_id: UUID, channel_id: str
    ) -> Channel | None:
        """With those of its knowledge bases that the principal sees."""


class Documents(Protocol):
    """Every write for a revision applies only while that revision is the newest (version fence)."""

    async def register(self, principal: Principal, upload: StoredUpload) -> tuple[Document, bool] | None:
        """A new document, or a new revision of the one with that name.

        False beside the document: it holds these very bytes already, and nothing but its metadata was written.
        None: the knowledge base is not there to see (any more). An upload whose idempotency key is known writes
        nothing, and is answered as the first one was; Conflict: that was another upload, or its document is gone.
        PermissionDenied: the owner of the knowledge base has reached the quota.
        """

    async def visible(
        self, principal: Principal, kb_id: UUID, wanted: DocumentFilter, *, after: UUID | None, limit: int
    ) -> list[Document]: ...

    async def chunks(
        self, principal: Principal, document_id: UUID, *, after: int | None, limit: int
    ) -> list[Chunk]:
        """Chunks of the live revision in reading order, from behind the ordinal `after`."""

    async def states(
        self,
        principal: Principal,
        kb_id: UUID,
        *,
        only: Sequence[UUID] | None,
        after: tuple[datetime, UUID] | None,
        limit: int,
    ) -> list[Document]:
        """All documents or `only` these, in order of (created_at, id), from behind `after`: that of the last seen,
        which need not exist any more."""

    async def find(self, principal: Principal, document_id: UUID) -> Document | None: ...

    async def delete(
        self, principal: Principal, document_id: UUID, seen: Collection[str] | None = None
    ) -> Removed | None:
        """PreconditionFailed: it is none of the versions in `seen`."""

    async def reprocess(
        self, principal: Principal, document_id: UUID, seen: Collection[str] | None = None
    ) -> Document | None:
        """A new revision of the bytes that are stored; None: there is no document to see.

        PreconditionFailed: it is none of the versions in `seen`.
        """

    async def reprocess_batch(
        self, principal: Principal, kb_id: UUID, *, after: UUID | None, limit: int
    ) -> list[UUID]:
        """New revisions of up to `limit` documents of a knowledge base, in order of id, from behind `after`."""

    async def reembed(
        self, principal: Principal, document_id: UUID, seen: Collection[str] | None = None
    ) -> Document | None:
        """A new revision of the newest one's chunks, whose vectors are to be computed; None: no document to see.

        PreconditionFailed: it is none of the versions in `seen`. Conflict: no chunks are stored.
        """

    async def reembed_batch(
        self, principal: Principal, kb_id: UUID, *, after: UUID | None, limit: int
    ) -> list[tuple[UUID, bool]]:
        """The same for up to `limit` documents, as reprocess_batch; False beside those without chunks."""

    async def cancel(self, principal: Principal, document_id: UUID) -> Document | None:
        """Calls off the newest revision if it is still under way; the document as it then is, or None."""

    async def delete_all(self, principal: Principal, kb_id: UUID) -> Removed:
        """Every document of a knowledge base, in one transaction."""

    async def begin(self, document_id: UUID, revision: int) -> Revision | None:
        """Claims a revision for extraction; None: superseded, deleted, or extracted already."""

    async def save_chunks(self, revision: Revision, drafts: Sequence[ChunkDraft]) -> bool:
        """Stores the chunks and asks for their vectors; without drafts the document is `empty`. False: fenced."""

    async def fail(self, document_id: UUID, revision: int, code: str, detail: str) -> bool:
        """The document is `failed`, for a reason that its owner can act on. False: fenced."""


class Records(Protocol):
    """Rows of other kinds, under the same version fence."""

    async def unchanged(self, record: Record) -> bool:
        """True when there is nothing to do: a newer generation has begun, or the same or newer content is stored;
        revision and generation are noted."""

    async def upsert(self, record: Record, drafts: Sequence[ChunkDraft]) -> bool:
        """False: not newer than what is stored."""

    async def delete(self, deletion: RecordDeletion) -> bool:
        """False: not newer than what is stored."""

    async def seal(self, seal: Seal) -> bool:
        """Whether the generation went live with that."""


class RecordOutbox(Protocol):
    async def publish(self, changes: Sequence[Record | RecordDeletion | Seal]) -> None:
        """To the records topic: all of them, or none and Unavailable."""


class ObjectStore(Protocol):
    """Whole objects under opaque keys. Each call raises Unavailable when the store does not answer."""

    async def put(self, key: str, body: AsyncIterator[bytes]) -> None:
        """Stores a stream without holding it in memory. If `body` raises, nothing is left behind."""

    async def fetch(self, key: str, path: Path) -> None:
        """Copies an object into a local file. NotFound: there is none."""

    def read(self, key: str) -> AsyncGenerator[bytes, None]:
        """An object as a stream, a piece of it in memory at a time. Opened, and NotFound, with the first piece."""

    async def delete(self, key: str) -> None:
        """Removes an object; no error if there is none."""

    async def exists(self, key: str) -> bool: ...

    def keys(self, older_than: datetime) -> AsyncGenerator[str, None]:
        """Of what was stored before that time by the clock of the store, a page of them in memory at a time.

        Of unfinished objects too, where the store keeps such as files.
        """

    async def check(self) -> None:
        """Raises Unavailable unless the store can be used."""


Known = Callable[[Sequence[str]], Awaitable[set[str]]]
"""Those of the keys that a document points to."""


class StorageKeys(Protocol):
    def exclusive(self) -> AbstractAsyncContextManager[Known | None]:
        """None: it is somebody else's turn."""


class EmbeddingProvider(Protocol):
    async def require(self) -> None:
        """Raises Unavailable unless there is something that can give vectors to what is uploaded now."""


class Search(Protocol):
    async def kb_search(
        self, authorization: str | None, asked: KbSearchArguments, *, explain: bool
    ) -> SearchAnswer:
        """In the name of whom `authorization` proves. Raises the errors of the search service; Unavailable."""

    async def retrieve_context(self, authorization: str | None, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """RetrieveContext, request and response as JSON has them, with every field. Otherwise as `kb_search`."""

    async def assemble_context(self, authorization: str | None, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """AssembleContext, likewise."""


class Extractor(Protocol):
    async def extract(self, path: Path, content_type: ContentType, origin: Origin) -> list[ChunkDraft]:
        """Chunks of a file in reading order, with their headers. Raises ExtractionFailed or UnsupportedType."""


class Chunker(Protocol):
    async def chunk_text(self, text: str) -> list[ChunkDraft]:
        """Chunks of a plain text."""


class Webhooks(Protocol):
    """A principal sees its own."""

    async def create(
        self,
        principal: Principal,
        endpoint: str,
        secret: bytes,
        statuses: Sequence[EventStatus],
        kb_ids: Sequence[UUID],
        *,
        limit: int,
    ) -> Webhook | None:
        """None: the principal has `limit` of them already."""

    async def mine(self, principal: Principal) -> list[Webhook]: ...

    async def find(self, principal: Principal, webhook_id: UUID) -> Webhook | None: ...

    async def delete(self, principal: Principal, webhook_id: UUID) -> bool: ...

    async def rotate(self, principal: Principal, webhook_id: UUID, secret: bytes) -> Webhook | None:
        """A new `secret`; the one before signs too for a while. None: there is no such webhook."""

    async def disable(self, webhook_id: UUID) -> None:
        """Nothing new is noted for it, and nothing sent, until it is enabled."""

    async def enable(self, principal: Principal, webhook_id: UUID) -> Webhook | None: ...

    async def deliveries(
        self, principal: Principal, webhook_id: UUID, *, before: UUID | None, limit: int
    ) -> list[Delivery]:
        """The newest first."""

    async def redeliver(
        self, principal: Principal, webhook_id: UUID, delivery_id: UUID
    ) -> tuple[Delivery, bool] | None:
        """The delivery begins anew; False beside it: it is being attempted right now. None: there is none."""

    async def enqueue(self, event: StatusEvent) -> int:
        """A delivery for each webhook that asks for it and whose user may see the document; repeats do nothing."""

    async def claim(self, *, limit: int, busy: Sequence[UUID], lease_s: float) -> list[Due]:
        """Due deliveries, one at most of each webhook that is not `busy`; nobody else gets them for `lease_s`."""

    async def settle(
        self, due: Due, *, response_code: int | None, error: str | None, retry_s: float | None
    ) -> None:
        """Notes the outcome of an attempt. No `error`: delivered. No `retry_s`: given up."""

    async def purge(self) -> None:
        """Forgets old deliveries that are done with, and secrets that do not sign any more."""


class Endpoints(Protocol):
    """The outside, as far as webhooks may go there."""

    async def check(self, endpoint: str) -> None:
        """Raises InvalidArgument: not a URL to send to, it cannot be found, or leads into a private network."""

    async def post(self, endpoint: str, headers: Mapping[str, str], body: bytes) -> int:
        """The status code of the answer. Raises InvalidArgument as `check`, Unavailable: no answer."""
