"""The tables that the embedder writes."""

from services.embedder.adapters.postgres.backlog import PostgresBacklog
from services.embedder.adapters.postgres.space_store import PostgresSpaceStore
from services.embedder.adapters.postgres.spaces import PostgresSpaces, ensure_space
from services.embedder.adapters.postgres.vectors import PostgresVectorStore

__all__ = ["PostgresBacklog", "PostgresSpaceStore", "PostgresSpaces", "PostgresVectorStore", "ensure_space"]
