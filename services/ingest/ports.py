"""What the handlers need from the outside."""

from collections.abc import AsyncIterator, Sequence
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
