"""Bodies of requests and answers."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from kbmesh.provenance import Category, Tier
from services.ingest.domain.metadata import Metadata
from services.ingest.domain.models import Document, OwnerType, Removed, Status
from services.ingest.entrypoints.http import examples
from services.ingest.entrypoints.http.problems import Problem

Name = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
]
Description = Annotated[str, StringConstraints(max_length=2000, pattern=r"^[^\x00]*$")]


class KnowledgeBaseIn(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [examples.KNOWLEDGE_BASE_IN]})

    name: Name = Field(examples=["Finance"])
    description: Description = ""
    owner_type: OwnerType = OwnerType.USER
    owner_id: UUID | None = Field(None, description="The team; for a personal one, you by default.")


class KnowledgeBaseChange(BaseModel):
    """What is absent or null stays as it is."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"minProperties": 1})

    name: Name | None = Field(None, examples=["Finance 2027"])
    description: Description | None = None

    @model_validator(mode="after")
    def _something(self) -> "KnowledgeBaseChange":
        if self.name is None and self.description is None:
            raise ValueError("give a name or a description")
        return self


class KnowledgeBaseOut(BaseModel):
    model_config = ConfigDict(from_attributes=True, json_schema_extra={"examples": [examples.KNOWLEDGE_BASE]})

    id: UUID
    owner_type: OwnerType
    owner_id: UUID
    name: str
    description: str
    created_at: datetime
    updated_at: datetime


class KnowledgeBaseDetail(KnowledgeBaseOut):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.KNOWLEDGE_BASE_DETAIL]})

    document_count: int
    size_bytes: int = Field(description="Of all files together.")
    ready_count: int
    failed_count: int


class KnowledgeBasePage(BaseModel):
    items: list[KnowledgeBaseOut]
    next_after: UUID | None = Field(None, description="Pass as `after` for the next page; absent on the last.")


class DocumentOut(BaseModel):
    model_config = ConfigDict(from_attributes=True, json_schema_extra={"examples": [examples.DOCUMENT]})

    id: UUID
    kb_id: UUID
    filename: str
    content_type: str
    category: Category
    source_priority: Tier | None
    metadata: Metadata
    size_bytes: int
    content_sha256: str
    uploader: UUID
    status: Status
    error_code: str | None
    error_detail: str | None
    revision: int = Field(description="Grows with each upload, reprocessing and re-embedding.")
    live_revision: int | None = Field(description="What search sees.")
    chunk_count: int
    embedded_count: int
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, document: Document) -> "DocumentOut":
        shown = {field: getattr(document, field) for field in cls.model_fields}
        return cls(**{**shown, "content_sha256": document.content_sha256.hex()})


class DocumentPage(BaseModel):
    items: list[DocumentOut]
    next_after: UUID | None = Field(None, description="Pass as `after` for the next page; absent on the last.")


class ChunkOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: UUID
    revision: int
    ordinal: int = Field(description="From 0, in reading order.")
    page: int | None
    headings: list[str] = Field(description="In force where the chunk begins, outermost first.")
    char_start: int = Field(description="Place in the extracted text, in code points.")
    char_end: int
    token_count: int
    tier: Tier
    content: str


class ChunkPage(BaseModel):
    items: list[ChunkOut]
    next_after: int | None = Field(None, description="Pass as `after` for the next page; absent on the last.")


class UploadOut(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.UPLOADED]})

    document_id: UUID
    kb_id: UUID
    filename: str
    revision: int
    status: Status
    metadata: Metadata
    unchanged: bool = Field(
        description="The document holds these bytes already: no new revision; the metadata is that of this upload."
    )

    @classmethod
    def of(cls, document: Document, *, changed: bool) -> "UploadOut":
        return cls(
            document_id=document.id,
            kb_id=document.kb_id,
            filename=document.filename,
            revision=document.revision,
            status=document.status,
            metadata=document.metadata,
            unchanged=not changed,
        )


class UploadedFileOut(BaseModel):
    filename: str | None = Field(
        description="As it was sent; null for what follows a place where the form cannot be read."
    )
    status: int = Field(description="What the file alone would be answered with.")
    document: UploadOut | None = None
    problem: Problem | None = None


class UploadedFilesOut(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.UPLOADED_FILES]})

    items: list[UploadedFileOut]


class ReprocessedOut(BaseModel):
    documents: int


class ReembeddedOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    documents: int
    skipped: int = Field(description="No text is stored of them: failed, empty, or not extracted yet.")


class LeftOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    documents: int
    chunks: int
    vectors: int


class RemovedOut(BaseModel):
    """The receipt of a deletion."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.REMOVED]})

    documents: int
    chunks: int
    vectors: int = Field(description="In all embedding spaces.")
    objects: int = Field(description="Files of these documents in the object store.")
    documents_in_progress: int = Field(
        description="Of the documents, those still pending, processing or embedding. Messages about them that were"
        " sent already, and work that had begun, find no document and write nothing."
    )
    messages_fenced: int = Field(
        description="Messages that were to start work on the documents and had not been sent yet. They will be,"
        " and write nothing either."
    )
    left: LeftOut | None = Field(
        description="What the database still held of them after the deletion; null: it did not answer in time."
    )
    objects_left: int = Field(description="Files that were found in the object store after their removal.")
    objects_pending: int = Field(
        description="Files that the object store has not confirmed to be gone. Messages in the outbox remove them."
    )
    verified: bool = Field(description="Nothing was found left, and everything was looked for.")

    @classmethod
    def of(cls, removed: Removed) -> "RemovedOut":
        return cls(
            documents=removed.documents,
            chunks=removed.chunks,
            vectors=removed.vectors,
            objects=len(removed.storage_keys),
            documents_in_progress=removed.in_progress,
            messages_fenced=removed.unsent_messages,
            left=None if removed.left is None else LeftOut.model_validate(removed.left),
            objects_left=removed.objects_left,
            objects_pending=removed.objects_pending,
            verified=removed.verified,
        )
