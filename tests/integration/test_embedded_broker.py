import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deploy.embedded.broker import EmbeddedBroker
from deploy.embedded.ports import free_ports, require_free
from deploy.embedded.process import stop_leftover
from deploy.kafka.topics import ensure_topics
from kbmesh.errors import Misconfigured
from kbmesh.messaging import KafkaSettings
from tests.support.records import read, write

pytestmark = pytest.mark.broker

RUNNER = """
import sys, time
from pathlib import Path
from deploy.embedded.broker import EmbeddedBroker
directory = Path(sys.argv[1])
EmbeddedBroker(directory, port=int(sys.argv[2]), run_dir=directory, log_file=directory / "broker.log").start()
print("started", flush=True)
time.sleep(60)
"""


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def broker(tmp_path: Path, port: int) -> EmbeddedBroker:
    return EmbeddedBroker(tmp_path, port=port, run_dir=tmp_path, log_file=tmp_path / "broker.log")


@pytest.fixture
def killed_runner(tmp_path: Path, port: int) -> Iterator[None]:
    """The broker of that directory and port runs on after its runner was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(tmp_path), str(port)], stdout=subprocess.PIPE
    ) as runner:
        assert runner.stdout is not None
        assert b"started\n" in runner.stdout
        runner.kill()
    yield
    stop_leftover("broker", tmp_path, timeout_s=10)


async def test_topics_and_records_survive_a_clean_stop(broker: EmbeddedBroker) -> None:
    settings = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
    await asyncio.to_thread(broker.start)
    await ensure_topics(settings, partitions=4)
    await write(settings, settings.topics.documents, [(b"d1", b"first"), (b"d1", b"second")])
    await asyncio.to_thread(broker.stop)

    await asyncio.to_thread(broker.start)

    try:
        assert (await ensure_topics(settings, partitions=4)).created == ()
        records = await read(settings, settings.topics.documents, 2)
        assert [(record.key, record.value) for record in records] == [(b"d1", b"first"), (b"d1", b"second")]
    finally:
        await asyncio.to_thread(broker.stop)


def test_stopping_frees_the_port_and_leaves_no_process(broker: EmbeddedBroker, port: int) -> None:
    others = set(psutil.Process().children(recursive=True))
    with broker:
        assert set(psutil.Process().children(recursive=True)) - others

    require_free(port, "--broker-port")
    assert not set(psutil.Process().children(recursive=True)) - others


@pytest.mark.usefixtures("killed_runner")
def test_after_a_killed_runner_the_next_start_takes_over(broker: EmbeddedBroker) -> None:
    with broker:
        assert broker.running


def test_a_taken_port_is_reported(broker: EmbeddedBroker, tmp_path: Path, port: int) -> None:
    other = EmbeddedBroker(tmp_path / "b", port=port, run_dir=tmp_path / "b", log_file=tmp_path / "b" / "log")

    with broker, pytest.raises(Misconfigured, match=f"port {port} is taken by noida-db"), other:
        pass


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path, port: int) -> None:
    (tmp_path / "file").touch()
    broker = EmbeddedBroker(tmp_path / "file" / "b", port=port, run_dir=tmp_path, log_file=tmp_path / "log")

    with pytest.raises(Misconfigured, match="cannot be used"), broker:
        pass
