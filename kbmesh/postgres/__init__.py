"""The door to the database: a pool with timeouts, and one translation of its troubles."""

from kbmesh.postgres.pool import Connection, Pool, PostgresSettings, connection, fetch_one, open_pool, transaction

__all__ = ["Connection", "Pool", "PostgresSettings", "connection", "fetch_one", "open_pool", "transaction"]
