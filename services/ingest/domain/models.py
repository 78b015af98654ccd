"""Knowledge bases and documents as the handlers see them."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import NAMESPACE_OID, UUID, uuid5

from kbmesh.provenance import Category, Tier
from services.ingest.domain.content_type import ContentType
from services.ingest.domain.headers import Origin
from services.ingest.domain.metadata import Metadata


class OwnerType(StrEnum):
    USER = "user"
    TEAM = "team"


class Status(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    EMBEDDING = "embedding"
    READY = "ready"
    EMPTY = "empty"
    FAILED = "failed"


IN_PROGRESS: Final = frozenset({Status.PENDING, Status.PROCESSING, Status.EMBEDDING})
CANCELLED: Final = "cancelled"
"""The error code of a revision that its owner has called off."""


@dataclass(frozen=True, slots=True)
class KnowledgeBase:
    id: UUID
    owner_type: OwnerType
    owner_id: UUID
    name: str
    description: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Channel:
    """Which knowledge bases a chat channel uses; its id is one among those of its owner."""

    owner_type: OwnerType
    owner_id: UUID
    id: str
    kb_ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """`revision` is the newest upload, `live_revision` the one that search sees."""

    id: UUID
    kb_id: UUID
    filename: str
    content_type: ContentType
    category: Category
    source_priority: Tier | None
    metadata: Metadata
    size_bytes: int
    content_sha256: bytes
    storage_key: str
    uploader: UUID
    status: Status
    error_code: str | None
    error_detail: str | None
    revision: int
    live_revision: int | None
    chunk_count: int
    embedded_count: int
    created_at: datetime
    updated_at: datetime

    @property
    def version(self) -> str:
        """Another one after every change of the document, its progress included."""
        return f"{self.revision}-{self.updated_at:%Y%m%d%H%M%S%f}"


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """Which documents of a knowledge base to list; None: any."""

    status: Status | None = None
    category: Category | None = None
    filename: str | None = None
    """Somewhere in the name, in upper or lower case."""
    metadata: Metadata = field(default_factory=dict)
    """All of these, beside others; of a list, all of its texts in any order."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document as search sees it; the span counts code points of the extracted text."""

    id: UUID
    revision: int
    ordinal: int
    content: str
    page: int | None
    headings: tuple[str, ...]
    char_start: int
    char_end: int
    token_count: int
    tier: Tier


@dataclass(frozen=True, slots=True)
class Contents:
    """What a knowledge base holds."""

    document_count: int
    size_bytes: int
    ready_count: int
    failed_count: int


@dataclass(frozen=True, slots=True)
class StoredUpload:
    """A file that has reached the object store and is about to become a revision of a document."""

    kb_id: UUID
    filename: str
    content_type: ContentType
    category: Category
    source_priority: Tier | None
    size_bytes: int
    content_sha256: bytes
    storage_key: str
    uploader: UUID
    idempotency_key: str | None = None
    """The caller's own name for this upload: for a day, its repetition is answered as it was."""
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Quota:
    """What one owner, a user or a team, may keep in all its knowledge bases together; 0: no limit."""

    max_documents: int = 0
    max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Revision:
    """What a worker claims: one revision of one document, and nothing newer or older."""

    document_id: UUID
    kb_id: UUID
    revision: int
    storage_key: str
    content_type: ContentType
    origin: Origin
    tier: Tier


@dataclass(frozen=True, slots=True)
class Reembedded:
    """What becomes of the documents of a knowledge base when all are to have new vectors."""

    documents: int
    skipped: int
    """Of whose newest revision no chunks are stored: it failed, is empty, or is yet to be extracted."""


@dataclass(frozen=True, slots=True)
class Left:
    """What the database was found to hold of deleted documents, after the commit."""

    documents: int = 0
    chunks: int = 0
    vectors: int = 0


@dataclass(frozen=True, slots=True)
class Removed:
    """The receipt of a deletion: what it took away, and what was found left afterwards."""

    documents: int
    chunks: int
    vectors: int
    storage_keys: tuple[str, ...]
    superseded_keys: tuple[str, ...] = ()
    """Objects of earlier revisions whose removal may still have been under way."""
    in_progress: int = 0
    """Documents that were still pending, processing or embedding."""
    unsent_messages: int = 0
    """Messages in the outbox that were to start work on them. They are sent all the same, and fenced off."""
    left: Left | None = None
    """None: the database did not answer in time after the commit."""
    objects_left: int = 0
    """Objects that were still there after they had been removed."""
    objects_pending: int = 0
    """Objects that the store has not confirmed to be gone; the events in the outbox remove them."""

    @property
    def verified(self) -> bool:
        return self.left == Left() and not self.objects_left and not self.objects_pending


def chunk_id(kind: str, source_id: str, revision: int, ordinal: int) -> UUID:
    """The same chunk of the same revision has the same id however often it is written."""
    return uuid5(NAMESPACE_OID, f"kbmesh:{kind}:{source_id}:{revision}:{ordinal}")
