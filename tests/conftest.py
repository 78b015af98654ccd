"""One PostgreSQL and one broker for the whole run; every test gets a database and topics of its own.

KBMESH_TEST_CONTAINERS=1 takes both from Docker, KBMESH_TEST_KAFKA=HOST:PORT an Apache Kafka that runs already.
"""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import asyncpg
import httpx
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from hypothesis import settings
from pydantic import SecretStr

from deploy.embedded.broker import EmbeddedBroker
from deploy.embedded.ports import free_ports
from deploy.embedded.postgres import EmbeddedPostgres
from deploy.kafka.topics import ensure_topics
from kbmesh.messaging import KafkaSettings, Topics
from kbmesh.postgres.migrate import migrate
from kbmesh.postgres.pool import PostgresSettings, open_pool
from services.ingest.entrypoints.http import Gateway
from tests.support.databases import DatabaseServer
from tests.support.gateway import ALICE, bearer, client_of, make_gateway

# In CI the same examples each time: a change is judged there, not luck. Elsewhere new ones are sought.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

TEST_PARTITIONS = 4
USE_CONTAINERS = os.environ.get("KBMESH_TEST_CONTAINERS") == "1"


@pytest.fixture(scope="session")
def servers_dir() -> Iterator[Path]:
    """A short path, unlike pytest's own: a Unix socket lies in it."""
    with tempfile.TemporaryDirectory(prefix="kbmesh-test-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def database_server(servers_dir: Path) -> Iterator[DatabaseServer]:
    with ExitStack() as stack:
        if USE_CONTAINERS:
            from tests.support import containers

            dsn = stack.enter_context(containers.postgres())
        else:
            server = EmbeddedPostgres(
                servers_dir / "pg", run_dir=servers_dir, log_file=servers_dir / "postgres.log", durable=False
            )
            dsn = stack.enter_context(server).dsn("postgres")
        yield DatabaseServer(dsn)


@pytest.fixture(scope="session")
def migrated_template(database_server: DatabaseServer) -> Iterator[str]:
    """Name of a migrated database that nobody is connected to, so that it can be copied."""
    with database_server.database() as dsn:
        migrate(dsn)
        yield DatabaseServer.name_of(dsn)


@pytest.fixture
def empty_database_dsn(database_server: DatabaseServer) -> Iterator[str]:
    with database_server.database() as dsn:
        yield dsn


@pytest.fixture
def database_dsn(database_server: DatabaseServer, migrated_template: str) -> Iterator[str]:
    """DSN of a fresh database with the current schema."""
    with database_server.database(template=migrated_template) as dsn:
        yield dsn


@pytest.fixture
def postgres_settings(database_dsn: str) -> PostgresSettings:
    return PostgresSettings(dsn=SecretStr(database_dsn))


@pytest.fixture
async def pool(postgres_settings: PostgresSettings) -> AsyncIterator[asyncpg.Pool]:
    async with open_pool(postgres_settings, vectors=True) as pool:
        yield pool


@pytest.fixture(scope="session")
def kafka_bootstrap(servers_dir: Path) -> Iterator[str]:
    """HOST:PORT of the broker of this run."""
    with ExitStack() as stack:
        if running := os.environ.get("KBMESH_TEST_KAFKA"):
            yield running
        elif USE_CONTAINERS:
            from tests.support import containers

            yield stack.enter_context(containers.kafka())
        else:
            [port] = free_ports(1)
            broker = EmbeddedBroker(
                servers_dir / "broker", port=port, run_dir=servers_dir, log_file=servers_dir / "broker.log"
            )
            yield stack.enter_context(broker).bootstrap_servers


@pytest.fixture
async def kafka_settings(kafka_bootstrap: str) -> AsyncIterator[KafkaSettings]:
    """Settings with a topic prefix of this test alone, its topics created."""
    settings = KafkaSettings(bootstrap_servers=kafka_bootstrap, topic_prefix=f"test-{uuid4().hex[:12]}")
    created = (await ensure_topics(settings, partitions=TEST_PARTITIONS)).created
    yield settings
    admin = AIOKafkaAdminClient(**settings.client_options())
    try:
        await admin.start()
        await admin.delete_topics(list(created))
    finally:
        await admin.close()


@pytest.fixture
def store_dir(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def gateway(pool: asyncpg.Pool, store_dir: Path) -> Gateway:
    return make_gateway(pool, store_dir, Topics("kbmesh"))


@pytest.fixture
async def http(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """Alice's client of the gateway."""
    async with client_of(gateway) as client:
        client.headers.update(bearer(ALICE))
        yield client


@pytest.fixture
async def kb(http: httpx.AsyncClient) -> str:
    """A knowledge base of Alice's."""
    created: dict[str, str] = (await http.post("/knowledge-bases", json={"name": "Finance"})).json()
    return created["id"]


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For tests that run a model here: several threads wait for one another when the machine has other work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
