"""Knowledge bases, documents and records as the handlers see them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import NAMESPACE_OID, UUID, uuid5

from kbmesh.provenance import Category, Tier
from services.ingest.domain.content_type import ContentType
from services.ingest.domain.extraction import ChunkDraft


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
    size_bytes: int
    content_sha256: bytes
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
    tier: Tier


@dataclass(frozen=True, slots=True)
class Removed:
    """What a deletion took away."""

    documents: int
    chunks: int
    vectors: int
    storage_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A row of any kind but document_chunk, as another service handed it over."""

    kind: str
    source_id: str
    revision: int
    content: str
    title: str
    tier: Tier
    attributes: dict[str, object]
    valid_until: datetime | None
    content_sha256: bytes
    """Over everything above but `revision`: equal means that nothing changed."""


def chunk_id(kind: str, source_id: str, revision: int, draft: ChunkDraft) -> UUID:
    """The same chunk of the same revision has the same id however often it is written."""
    return uuid5(NAMESPACE_OID, f"kbmesh:{kind}:{source_id}:{revision}:{draft.ordinal}")
