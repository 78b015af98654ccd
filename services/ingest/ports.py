"""What the handlers need from the outside."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol
from uuid import UUID

from kbmesh.auth import Principal
from services.ingest.domain.content_type import ContentType
from services.ingest.domain.extraction import ChunkDraft
from services.ingest.domain.models import (
    Document,
    KnowledgeBase,
    OwnerType,
    Record,
    Removed,
    Revision,
    StoredUpload,
)
from services.ingest.domain.webhooks import Delivery, Due, EventStatus, StatusEvent, Webhook


class KnowledgeBases(Protocol):
    """Reads show a principal what it may see; all else is absent."""

    async def create(
        self, owner_type: OwnerType, owner_id: UUID, name: str, description: str
    ) -> KnowledgeBase: ...

    async def visible(self, principal: Principal, *, after: UUID | None, limit: int) -> list[KnowledgeBase]:
        """In order of creation, from behind the knowledge base `after`."""

    async def find(self, principal: Principal, kb_id: UUID) -> KnowledgeBase | None: ...

    async def delete(self, principal: Principal, kb_id: UUID) -> Removed | None:
        """Everything in it goes in one transaction, with an event per document; None: there is none to see."""


class Documents(Protocol):
    """Every write for a revision applies only while that revision is the newest (version fence)."""

    async def register(self, principal: Principal, upload: StoredUpload) -> tuple[Document, bool] | None:
        """A new document, or a new revision of the one with that name.

        False beside the document: it holds these very bytes already and nothing was written. None: the
        knowledge base is not there to see (any more).
        """

    async def visible(
        self, principal: Principal, kb_id: UUID, *, after: UUID | None, limit: int
    ) -> list[Document]: ...

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

    async def delete(self, principal: Principal, document_id: UUID) -> Removed | None: ...

    async def begin(self, document_id: UUID, revision: int) -> Revision | None:
        """Claims a revision for extraction; None: superseded, deleted, or extracted already."""

    async def save_chunks(self, revision: Revision, drafts: Sequence[ChunkDraft]) -> bool:
        """Stores the chunks and asks for their vectors; without drafts the document is `empty`. False: fenced."""

    async def fail(self, document_id: UUID, revision: int, code: str, detail: str) -> bool:
        """The document is `failed`, for a reason that its owner can act on. False: fenced."""


class Records(Protocol):
    """Rows of other kinds, under the same version fence."""

    async def unchanged(self, record: Record) -> bool:
        """True when there is nothing to do: the same content is stored (its revision is noted), or a newer one."""

    async def upsert(self, record: Record, drafts: Sequence[ChunkDraft]) -> bool:
        """False: not newer than what is stored."""

    async def delete(self, kind: str, source_id: str, revision: int) -> bool: ...


class ObjectStore(Protocol):
    """Whole objects under opaque keys. Each call raises Unavailable when the store does not answer."""

    async def put(self, key: str, body: AsyncIterator[bytes]) -> None:
        """Stores a stream without holding it in memory. If `body` raises, nothing is left behind."""

    async def fetch(self, key: str, path: Path) -> None:
        """Copies an object into a local file. NotFound: there is none."""

    async def delete(self, key: str) -> None:
        """Removes an object; no error if there is none."""

    async def check(self) -> None:
        """Raises Unavailable unless the store can be used."""


class Extractor(Protocol):
    async def extract(self, path: Path, content_type: ContentType) -> list[ChunkDraft]:
        """Chunks of a file in reading order. Raises ExtractionFailed or UnsupportedType."""


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
        """Forgets old deliveries that are done with."""


class Endpoints(Protocol):
    """The outside, as far as webhooks may go there."""

    async def check(self, endpoint: str) -> None:
        """Raises InvalidArgument: not a URL to send to, it cannot be found, or leads into a private network."""

    async def post(self, endpoint: str, headers: Mapping[str, str], body: bytes) -> int:
        """The status code of the answer. Raises InvalidArgument as `check`, Unavailable: no answer."""
