"""The tables that ingest writes."""

from services.ingest.adapters.postgres.channels import PostgresChannels
from services.ingest.adapters.postgres.documents import PostgresDocuments
from services.ingest.adapters.postgres.knowledge_bases import PostgresKnowledgeBases
from services.ingest.adapters.postgres.listening import listen_for_documents
from services.ingest.adapters.postgres.outbox import OutboxRelay
from services.ingest.adapters.postgres.record_outbox import PostgresRecordOutbox
from services.ingest.adapters.postgres.records import PostgresRecords
from services.ingest.adapters.postgres.storage_keys import PostgresStorageKeys
from services.ingest.adapters.postgres.webhooks import PostgresWebhooks

__all__ = [
    "OutboxRelay",
    "PostgresChannels",
    "PostgresDocuments",
    "PostgresKnowledgeBases",
    "PostgresRecordOutbox",
    "PostgresRecords",
    "PostgresStorageKeys",
    "PostgresWebhooks",
    "listen_for_documents",
]
