"""The tables that ingest writes."""

from services.ingest.adapters.postgres.channels import PostgresChannels
from services.ingest.adapters.postgres.documents import PostgresDocuments
from services.ingest.adapters.postgres.knowledge_bases import PostgresKnowledgeBases
from services.ingest.adapters.postgres.outbox import OutboxRelay
from services.ingest.adapters.postgres.records import PostgresRecords

__all__ = ["OutboxRelay", "PostgresChannels", "PostgresDocuments", "PostgresKnowledgeBases", "PostgresRecords"]
