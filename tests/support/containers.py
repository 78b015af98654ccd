"""The servers of production in Docker, for runs with KBMESH_TEST_CONTAINERS=1."""

from collections.abc import Iterator
from contextlib import contextmanager

from testcontainers.community.postgres import PostgresContainer
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from deploy.embedded.ports import LOOPBACK, free_ports


@contextmanager
def postgres() -> Iterator[str]:
    """DSN of the maintenance database."""
    with PostgresContainer("pgvector/pgvector:pg18", dbname="postgres", driver=None) as server:
        yield server.get_connection_url()


@contextmanager
def kafka() -> Iterator[str]:
    """HOST:PORT of one broker in KRaft mode. It advertises its port, so inside and outside must be the same."""
    port, controller = free_ports(2)
    server = DockerContainer("apache/kafka:4.1.0").with_bind_ports(port, port)
    for name, value in {
        "NODE_ID": "1",
        "PROCESS_ROLES": "broker,controller",
        "LISTENERS": f"PLAINTEXT://:{port},CONTROLLER://:{controller}",
        "ADVERTISED_LISTENERS": f"PLAINTEXT://{LOOPBACK}:{port}",
        "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "CONTROLLER_QUORUM_VOTERS": f"1@localhost:{controller}",
        "OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }.items():
        server.with_env(f"KAFKA_{name}", value)
    server.waiting_for(LogMessageWaitStrategy("Kafka Server started").with_startup_timeout(60))
    with server:
        yield f"{LOOPBACK}:{port}"
