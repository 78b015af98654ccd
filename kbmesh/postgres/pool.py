import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg
import structlog
from asyncpg.pool import PoolConnectionProxy
from pgvector.asyncpg import register_vector
from pydantic import BaseModel, ConfigDict, SecretStr

from kbmesh.errors import Unavailable

Pool = asyncpg.Pool
Connection = PoolConnectionProxy

log = structlog.get_logger(__name__)

_DOWN: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InsufficientResourcesError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.QueryCanceledError,
    OSError,
    TimeoutError,
)


class PostgresSettings(BaseModel):
    """`dsn` as PostgreSQL clients know it; times in seconds."""

    model_config = ConfigDict(frozen=True)

    dsn: SecretStr
    min_size: int = 1
    max_size: int = 10
    connect_timeout_s: float = 10
    command_timeout_s: float = 30
    statement_cache_size: int = 100
    """0 behind PgBouncer in transaction mode."""


@asynccontextmanager
async def open_pool(
    settings: PostgresSettings, *, vectors: bool = False, server_settings: Mapping[str, str] | None = None
) -> AsyncIterator[Pool]:
    """A connection pool; `vectors` registers pgvector's types on every connection.

    Raises:
        Unavailable: the database does not answer.
    """

    async def init(conn: asyncpg.Connection) -> None:
        if vectors:
            await register_vector(conn)

    try:
        pool = await asyncpg.create_pool(
            settings.dsn.get_secret_value(),
            min_size=settings.min_size,
            max_size=settings.max_size,
            timeout=settings.connect_timeout_s,
            command_timeout=settings.command_timeout_s,
            statement_cache_size=settings.statement_cache_size,
            server_settings=dict(server_settings or {}),
            init=init,
        )
    except _DOWN as error:
        raise Unavailable("the database does not answer", code="database_unavailable") from error
    try:
        yield pool
    finally:
        await _close(pool, settings.connect_timeout_s)


async def _close(pool: Pool, timeout_s: float) -> None:
    try:
        await asyncio.wait_for(pool.close(), timeout_s)
    except TimeoutError:
        log.warning("postgres_pool_terminated", timeout_s=timeout_s)
        pool.terminate()


@asynccontextmanager
async def connection(pool: Pool, *, timeout_s: float = 10) -> AsyncIterator[Connection]:
    """A pooled connection.

    Raises:
        Unavailable: the database is down, read-only, out of resources, or too slow; try again later.
    """
    try:
        async with _acquired(pool, timeout_s) as conn:
            yield conn
    except _DOWN as error:
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            # A failover left these connections on what is now a replica.
            await pool.expire_connections()
        raise Unavailable(
            f"the database does not answer ({type(error).__name__})", code="database_unavailable"
        ) from error


@asynccontextmanager
async def _acquired(pool: Pool, timeout_s: float) -> AsyncIterator[Connection]:
    try:
        conn = await pool.acquire(timeout=timeout_s)
    except (asyncpg.InterfaceError, asyncpg.PostgresError) as error:
        # The pool is closed, or the server refuses a new connection, for whatever reason.
        raise asyncpg.ConnectionDoesNotExistError(f"no connection ({type(error).__name__})") from error
    try:
        yield conn
    except asyncpg.InterfaceError as error:
        # Says both that the connection was lost and that the caller passed a wrong argument.
        if _is_lost(conn):
            raise asyncpg.ConnectionDoesNotExistError("the connection was lost") from error
        raise
    finally:
        await pool.release(conn)


def _is_lost(conn: Connection) -> bool:
    try:
        return bool(conn.is_closed())
    except asyncpg.InterfaceError:
        return True  # the pool has taken it back


@asynccontextmanager
async def transaction(pool: Pool, *, timeout_s: float = 10, **options: Any) -> AsyncIterator[Connection]:
    """A pooled connection inside a transaction, committed on exit; `options` as asyncpg's `transaction`."""
    async with connection(pool, timeout_s=timeout_s) as conn, conn.transaction(**options):
        yield conn


async def fetch_one(conn: Connection, statement: str, *arguments: object) -> asyncpg.Record:
    """The row of a statement that always yields one, for instance INSERT ... RETURNING."""
    row = await conn.fetchrow(statement, *arguments)
    if row is None:
        raise LookupError("the statement was to yield a row and did not")
    return row
