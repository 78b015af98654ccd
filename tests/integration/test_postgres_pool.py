import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from pgvector import HalfVector, Vector
from pydantic import SecretStr

from deploy.embedded.ports import LOOPBACK, free_ports
from kbmesh.errors import Unavailable
from kbmesh.postgres import Pool, PostgresSettings, connection, open_pool, transaction


@pytest.fixture
async def small_pool(postgres_settings: PostgresSettings) -> AsyncIterator[Pool]:
    async with open_pool(postgres_settings.model_copy(update={"max_size": 1})) as pool:
        await pool.execute("CREATE TABLE notes (id int PRIMARY KEY)")
        yield pool


async def cut(pool: Pool, settings: PostgresSettings) -> None:
    """Ends every connection of the pool, as a failover does."""
    admin = await asyncpg.connect(settings.dsn.get_secret_value())
    try:
        ended = await admin.fetch(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert ended
    finally:
        await admin.close()


async def test_a_database_that_does_not_answer_is_unavailable() -> None:
    [port] = free_ports(1)
    with pytest.raises(Unavailable) as caught:
        async with open_pool(PostgresSettings(dsn=SecretStr(f"postgresql://u:hush@{LOOPBACK}:{port}/d"))):
            pass
    assert caught.value.code == "database_unavailable"
    assert "hush" not in str(caught.value)


async def test_a_database_that_accepts_and_says_nothing_is_unavailable_within_the_timeout() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        hung_up.set()

    hung_up = asyncio.Event()
    async with await asyncio.start_server(silent, LOOPBACK, 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = PostgresSettings(
            dsn=SecretStr(f"postgresql://u@{LOOPBACK}:{port}/d?sslmode=disable"), connect_timeout_s=0.3
        )
        with pytest.raises(Unavailable):
            async with open_pool(settings):
                pass
        await asyncio.wait_for(hung_up.wait(), 5)


async def test_a_connection_that_is_cut_is_unavailable_and_the_next_one_works(
    small_pool: Pool, postgres_settings: PostgresSettings
) -> None:
    with pytest.raises(Unavailable):
        async with connection(small_pool) as conn:
            await cut(small_pool, postgres_settings)
            await conn.fetchval("SELECT 1")
    async with connection(small_pool) as conn:
        assert await conn.fetchval("SELECT 1") == 1


async def test_a_connection_that_was_cut_while_idle_costs_one_try_at_most(
    small_pool: Pool, postgres_settings: PostgresSettings
) -> None:
    await cut(small_pool, postgres_settings)
    try:
        async with connection(small_pool) as conn:
            await conn.fetchval("SELECT 1")
    except Unavailable:
        async with connection(small_pool) as conn:
            assert await conn.fetchval("SELECT 1") == 1


async def test_a_transaction_that_is_cut_is_unavailable_and_has_no_effect(
    small_pool: Pool, postgres_settings: PostgresSettings
) -> None:
    with pytest.raises(Unavailable):
        async with transaction(small_pool) as conn:
            await conn.execute("INSERT INTO notes VALUES (1)")
            await cut(small_pool, postgres_settings)
            await conn.execute("INSERT INTO notes VALUES (2)")
    async with connection(small_pool) as conn:
        assert await conn.fetchval("SELECT count(*) FROM notes") == 0


async def test_going_on_with_a_connection_that_is_gone_is_unavailable_too(
    small_pool: Pool, postgres_settings: PostgresSettings
) -> None:
    with pytest.raises(Unavailable):
        async with connection(small_pool) as conn:
            await cut(small_pool, postgres_settings)
            with pytest.raises((asyncpg.PostgresError, OSError)):
                await conn.fetchval("SELECT 1")
            await conn.fetchval("SELECT 1")


@pytest.mark.parametrize(
    ("statement", "arguments", "error"),
    [
        ("SELEC 1", (), asyncpg.PostgresSyntaxError),
        ("SELECT nothing FROM notes", (), asyncpg.UndefinedColumnError),
        ("SELECT 1 / 0", (), asyncpg.DivisionByZeroError),
        ("SELECT $1::int", ("not a number",), asyncpg.DataError),
        ("SELECT $1::int", (), asyncpg.InterfaceError),
        ("SELECT $1::uuid", ("no uuid",), asyncpg.DataError),
        ("SELECT 'x'::int", (), asyncpg.DataError),
    ],
)
async def test_a_mistake_of_the_caller_is_no_outage(
    small_pool: Pool, statement: str, arguments: tuple[object, ...], error: type[Exception]
) -> None:
    with pytest.raises(error):
        async with connection(small_pool) as conn:
            await conn.fetch(statement, *arguments)


async def test_a_violated_constraint_is_no_outage(small_pool: Pool) -> None:
    with pytest.raises(asyncpg.UniqueViolationError):
        async with transaction(small_pool) as conn:
            await conn.execute("INSERT INTO notes VALUES (1), (1)")


async def test_a_statement_that_takes_too_long_is_unavailable(postgres_settings: PostgresSettings) -> None:
    settings = postgres_settings.model_copy(update={"command_timeout_s": 0.1})
    async with open_pool(settings) as pool:
        with pytest.raises(Unavailable):
            async with connection(pool) as conn:
                await conn.execute("SELECT pg_sleep(10)")


async def test_a_pool_that_is_used_up_is_unavailable_after_the_timeout(small_pool: Pool) -> None:
    async with connection(small_pool):
        with pytest.raises(Unavailable):
            async with connection(small_pool, timeout_s=0.05):
                pass


async def test_a_pool_that_is_closed_is_unavailable(postgres_settings: PostgresSettings) -> None:
    async with open_pool(postgres_settings) as pool:
        pass
    with pytest.raises(Unavailable):
        async with connection(pool):
            pass


async def test_a_read_only_database_is_unavailable_and_its_connections_are_given_up(
    small_pool: Pool, postgres_settings: PostgresSettings
) -> None:
    async with connection(small_pool) as conn:
        before = await conn.fetchval("SELECT pg_backend_pid()")
    with pytest.raises(Unavailable):
        async with transaction(small_pool, readonly=True) as conn:
            await conn.execute("INSERT INTO notes VALUES (1)")
    async with connection(small_pool) as conn:
        assert await conn.fetchval("SELECT pg_backend_pid()") != before


async def test_an_error_of_the_caller_rolls_back_and_is_passed_on(small_pool: Pool) -> None:
    with pytest.raises(ZeroDivisionError):
        async with transaction(small_pool) as conn:
            await conn.execute("INSERT INTO notes VALUES (1)")
            raise ZeroDivisionError
    async with connection(small_pool) as conn:
        assert await conn.fetchval("SELECT count(*) FROM notes") == 0


async def test_a_transaction_is_committed_on_exit(small_pool: Pool) -> None:
    async with transaction(small_pool) as conn:
        await conn.execute("INSERT INTO notes VALUES (1)")
    async with connection(small_pool) as conn:
        assert await conn.fetchval("SELECT count(*) FROM notes") == 1


async def test_a_caller_that_is_cancelled_gives_its_connection_back(small_pool: Pool) -> None:
    async def wait() -> None:
        async with transaction(small_pool) as conn:
            await conn.execute("INSERT INTO notes VALUES (1)")
            began.set()
            await conn.execute("SELECT pg_sleep(60)")

    began = asyncio.Event()
    waiting = asyncio.ensure_future(wait())
    await asyncio.wait_for(began.wait(), 5)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with connection(small_pool, timeout_s=5) as conn:
        assert await conn.fetchval("SELECT count(*) FROM notes") == 0


async def test_vectors_go_in_and_come_out(pool: Pool) -> None:
    async with connection(pool) as conn:
        vector = await conn.fetchval("SELECT $1::vector(3)", Vector([1.0, 2.0, 0.5]))
        half = await conn.fetchval("SELECT $1::halfvec(3)", HalfVector([1.0, 2.0, 0.5]))
    assert list(vector.to_list() if isinstance(vector, Vector) else vector) == [1.0, 2.0, 0.5]
    assert half.to_list() == [1.0, 2.0, 0.5]


async def test_server_settings_survive_the_reset_between_uses(postgres_settings: PostgresSettings) -> None:
    async with open_pool(postgres_settings, server_settings={"plan_cache_mode": "force_custom_plan"}) as pool:
        for _ in range(3):
            async with connection(pool) as conn:
                assert await conn.fetchval("SHOW plan_cache_mode") == "force_custom_plan"
                await conn.execute("SET plan_cache_mode = auto")
