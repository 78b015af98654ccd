"""Events off the topics, turned into calls of the handlers."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from uuid import UUID

from kbmesh.errors import InvalidArgument, Poison
from kbmesh.events.v1.documents_pb2 import DocumentDeleted, DocumentUploaded
from kbmesh.events.v1.records_pb2 import GenerationSealed, RecordDeleted, RecordUpserted
from kbmesh.events.v1.status_pb2 import DocumentStatus, DocumentStatusChanged
from kbmesh.messaging import Message, decode, unpack
from services.ingest.domain.webhooks import EventStatus, StatusEvent
from services.ingest.entrypoints.records import read_deletion, read_record, read_seal
from services.ingest.handlers import extraction
from services.ingest.handlers.records import delete_record, seal_generation, upsert_record
from services.ingest.handlers.turns import Turns
from services.ingest.ports import Chunker, Documents, Extractor, ObjectStore, Records, Webhooks


@dataclass(frozen=True, slots=True)
class DocumentEvents:
    """Handles the documents topic."""

    documents: Documents
    store: ObjectStore
    extractor: Extractor
    turns: Turns

    async def handle(self, message: Message) -> None:
        event = decode(message.headers, message.value)
        if event.type == DocumentDeleted.DESCRIPTOR.full_name:
            await extraction.remove_object(self.store, unpack(event, DocumentDeleted).storage_key)
            return
        uploaded = unpack(event, DocumentUploaded)
        await extraction.extract_document(
            self.documents,
            self.store,
            self.extractor,
            self.turns,
            document_id=_uuid(uploaded.document_id),
            revision=uploaded.revision,
            size_bytes=uploaded.size_bytes,
            superseded_storage_key=uploaded.superseded_storage_key,
        )

    async def on_dead(self, message: Message, _: Exception) -> None:
        """Marks the document, if the message names one, so that it does not stay in processing for ever."""
        try:
            uploaded = unpack(decode(message.headers, message.value), DocumentUploaded)
            document_id = _uuid(uploaded.document_id)
        except Poison:
            return
        await extraction.give_up_document(self.documents, document_id=document_id, revision=uploaded.revision)


@dataclass(frozen=True, slots=True)
class RecordEvents:
    """Handles the records topic."""

    records: Records
    chunker: Chunker

    async def handle(self, message: Message) -> None:
        event = decode(message.headers, message.value)
        try:
            if event.type == RecordDeleted.DESCRIPTOR.full_name:
                await delete_record(self.records, read_deletion(unpack(event, RecordDeleted)))
            elif event.type == GenerationSealed.DESCRIPTOR.full_name:
                await seal_generation(self.records, read_seal(unpack(event, GenerationSealed)))
            else:
                record = read_record(unpack(event, RecordUpserted))
                await upsert_record(self.records, self.chunker, record)
        except InvalidArgument as error:
            raise Poison(error.detail, code=error.code) from error


@dataclass(frozen=True, slots=True)
class StatusEvents:
    """Handles the status topic for webhooks; calls `due` when there is something to send."""

    webhooks: Webhooks
    due: Callable[[], None]

    async def handle(self, message: Message) -> None:
        event = decode(message.headers, message.value)
        changed = unpack(event, DocumentStatusChanged)
        try:
            name = DocumentStatus.Name(changed.status).removeprefix("DOCUMENT_STATUS_").lower()
            status = EventStatus(name)
        except ValueError:
            raise Poison("unknown status", code="bad_payload") from None
        told = StatusEvent(
            id=event.id,
            document_id=_uuid(changed.document_id),
            kb_id=_uuid(changed.kb_id),
            revision=changed.revision,
            status=status,
            error_code=changed.error_code or None,
            chunk_count=changed.chunk_count,
            embedded_count=changed.embedded_count,
            occurred_at=changed.occurred_at.ToDatetime(UTC),
        )
        if await self.webhooks.enqueue(told):
            self.due()


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise Poison("an id is not a UUID", code="bad_payload") from None
