"""Database, broker and the four services on this machine, from Python packages alone."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from deploy.embedded import broker, postgres
from deploy.embedded.broker import EmbeddedBroker
from deploy.embedded.directory import DataDirectory
from deploy.embedded.ports import LOOPBACK, free_ports, require_free
from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.process import Part, stop_leftover
from deploy.embedded.service import STOP_TIMEOUT_S, Service, grpc_probe, http_probe
from deploy.embedded.supervisor import in_thread, keep_running, surface_log
from deploy.kafka.topics import ensure_topics
from kbmesh.errors import Misconfigured
from kbmesh.messaging import KafkaSettings
from kbmesh.postgres.migrate import migrate

SERVICES: Final = ("embedder", "ingest", "search", "skills")
PARTITIONS: Final = 4  # enough for one consumer of each kind with room for three more
ENCODER_MEMORY: Final = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_TRIM_THRESHOLD_": "1000000000",
    "MALLOC_MMAP_MAX_": "0",
}
"""Has glibc keep the memory that the model frees and needs again with every call, in huge pages. Encoding is then
faster, by up to a third, and takes some sixty megabytes more. Systems without glibc do not read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """Where a stack keeps its data and listens; everything listens on loopback only."""

    data_dir: Path
    http_port: int = 8080
    search_port: int = 50051
    skills_port: int = 50053
    embedder_port: int = 50052
    embedder_http_port: int = 8082
    records_port: int = 50054
    broker_port: int = 9092
    durable: bool = True
    """False for throw-away stacks: the database does not wait for the disk."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further settings of the services, as KBMESH_<NAME>_... variables."""

    @classmethod
    def throwaway(cls, data_dir: Path, environment: Mapping[str, str] | None = None) -> Self:
        """On free ports, for tests, the benchmark and the demo."""
        http, search, skills, embedder, embedder_http, records, kafka = free_ports(7)
        return cls(
            data_dir=data_dir,
            http_port=http,
            search_port=search,
            skills_port=skills,
            embedder_port=embedder,
            embedder_http_port=embedder_http,
            records_port=records,
            broker_port=kafka,
            durable=False,
            environment=environment or {},
        )

    @property
    def ports(self) -> dict[str, int]:
        """Ports by the flag that sets them."""
        return {
            "--http-port": self.http_port,
            "--search-port": self.search_port,
            "--skills-port": self.skills_port,
            "--embedder-port": self.embedder_port,
            "--embedder-http-port": self.embedder_http_port,
            "--records-port": self.records_port,
            "--broker-port": self.broker_port,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StackAddresses:
    """How to reach a running stack: base URLs, gRPC targets, HOST:PORT of the broker, the database's DSN."""

    http_url: str
    search: str
    skills: str
    embedder: str
    embeddings_url: str
    """For clients of OpenAI's embeddings."""
    records: str
    kafka: str
    postgres_dsn: str
    data_dir: Path


@asynccontextmanager
async def running_stack(
    options: StackOptions, progress: Callable[[str], None] = lambda _: None
) -> AsyncIterator[StackAddresses]:
    """A stack whose services are all ready; what dies is started again; everything is stopped in reverse order.

    Raises:
        Misconfigured: a port is taken, the disk is full, the directory is in use or cannot be used.
        Unavailable, MigrationFailed: a part did not come up; the detail has the end of its log.
    """
    directory = DataDirectory(options.data_dir.resolve())
    async with AsyncExitStack() as stack:
        stack.enter_context(directory.held(os.getpid()))
        await in_thread(_check, directory, options)
        database = EmbeddedPostgres(
            directory.postgres,
            run_dir=directory.run,
            log_file=directory.log(postgres.NAME),
            durable=options.durable,
        )
        kafka = EmbeddedBroker(
            directory.broker,
            port=options.broker_port,
            run_dir=directory.run,
            log_file=directory.log(broker.NAME),
        )
        with _timed(progress, "database"):
            await _start(stack, database)
            dsn: str = await in_thread(database.ensure_database, "kbmesh")
            await in_thread(migrate, dsn)
        with _timed(progress, "broker"):
            await _start(stack, kafka)
            settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
            await ensure_topics(settings, partitions=PARTITIONS)
        addresses = StackAddresses(
            http_url=f"http://{LOOPBACK}:{options.http_port}",
            search=f"{LOOPBACK}:{options.search_port}",
            skills=f"{LOOPBACK}:{options.skills_port}",
            embedder=f"{LOOPBACK}:{options.embedder_port}",
            embeddings_url=f"http://{LOOPBACK}:{options.embedder_http_port}/v1",
            records=f"{LOOPBACK}:{options.records_port}",
            kafka=kafka.bootstrap_servers,
            postgres_dsn=dsn,
            data_dir=directory.root,
        )
        services = _services(directory, options, addresses)
        stack.push_async_callback(_stop_together, services)
        watchers = await stack.enter_async_context(_watchers())
        for service in services:
            watchers.append(asyncio.create_task(surface_log(service)))
            await in_thread(service.start)
        await _all_ready(services, progress)
        watchers.extend(asyncio.create_task(keep_running(part)) for part in (database, kafka, *services))
        yield addresses


def _check(directory: DataDirectory, options: StackOptions) -> None:
    # First what a killed run left behind: it holds the ports.
    for name in (*SERVICES, broker.NAME, postgres.NAME):
        stop_leftover(name, directory.run, timeout_s=STOP_TIMEOUT_S)
    taken: dict[int, str] = {}
    for flag, port in options.ports.items():
        if port in taken:
            raise Misconfigured(f"port {port} is given to {taken[port]} and {flag}", code="port_taken")
        taken[port] = flag
        require_free(port, flag)
    directory.require_space()


async def _start(stack: AsyncExitStack, part: Part) -> None:
    stack.push_async_callback(in_thread, part.stop)
    await in_thread(part.start)


async def _stop_together(services: list[Service]) -> None:
    await asyncio.gather(*(in_thread(service.stop) for service in services))


async def _all_ready(services: list[Service], progress: Callable[[str], None]) -> None:
    async def ready(service: Service) -> None:
        with _timed(progress, service.name):
            await service.wait_until_ready()

    waiting = [asyncio.create_task(ready(service)) for service in services]
    try:
        await asyncio.gather(*waiting)
    finally:
        for task in waiting:
            task.cancel()


@asynccontextmanager
async def _watchers() -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks: list[asyncio.Task[None]] = []
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def _timed(progress: Callable[[str], None], name: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    progress(f"{name} ready ({time.monotonic() - started:.1f} s)")


def _services(directory: DataDirectory, options: StackOptions, addresses: StackAddresses) -> list[Service]:
    own: dict[str, dict[str, str]] = {
        "embedder": {
            "GRPC__HOST": LOOPBACK,
            "GRPC__PORT": str(options.embedder_port),
            "HTTP__HOST": LOOPBACK,
            "HTTP__PORT": str(options.embedder_http_port),
            "KAFKA__GROUP_INSTANCE_ID": "embedder",
        },
        "ingest": {
            "KAFKA__GROUP_INSTANCE_ID": "ingest",  # this broker never gives up on a member that died
            "HTTP__HOST": LOOPBACK,
            "HTTP__PORT": str(options.http_port),
            "GRPC__HOST": LOOPBACK,
            "GRPC__PORT": str(options.records_port),
            "STORE__DIRECTORY": str(directory.objects),
            "SEARCH__TARGET": addresses.search,
        },
        "search": {
            "GRPC__HOST": LOOPBACK,
            "GRPC__PORT": str(options.search_port),
            "EMBEDDING__TARGET": addresses.embedder,
            "SKILLS__TARGET": addresses.skills,
        },
        "skills": {
            "GRPC__HOST": LOOPBACK,
            "GRPC__PORT": str(options.skills_port),
            "EMBEDDING__TARGET": addresses.embedder,
        },
    }
    probes = {
        "embedder": grpc_probe(addresses.embedder),
        "ingest": http_probe(f"{addresses.http_url}/health/ready"),
        "search": grpc_probe(addresses.search),
        "skills": grpc_probe(addresses.skills),
    }
    common = {
        "POSTGRES__DSN": addresses.postgres_dsn,
        "KAFKA__BOOTSTRAP_SERVERS": addresses.kafka,
        "AUTH__MODE": "off",
    }
    return [
        Service(
            name,
            env={
                **(ENCODER_MEMORY if name == "embedder" else {}),
                **os.environ,
                "PYTHONUNBUFFERED": "1",
                **{f"KBMESH_{name.upper()}_{key}": value for key, value in (common | own[name]).items()},
                **options.environment,
            },
            probe=probes[name],
            run_dir=directory.run,
            log_file=directory.log(name),
        )
        for name in SERVICES
    ]
