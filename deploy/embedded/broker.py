"""The Kafka listener of the package `noida-db`, as a child process.

For one machine only: it writes a snapshot every few seconds and when it stops, so a kill loses what came
since the last snapshot.
"""

import asyncio
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from deploy.embedded.ports import LOOPBACK, require_free
from deploy.embedded.process import Child, Part, stop_leftover
from kbmesh.errors import Misconfigured, Unavailable

NAME: Final = "broker"
START_TIMEOUT_S: Final = 20.0
STOP_TIMEOUT_S: Final = 15.0
REQUEST_TIMEOUT_S: Final = 2.0


class EmbeddedBroker(Part):
    """One broker on one data directory and one loopback port."""

    def __init__(self, directory: Path, *, port: int, run_dir: Path, log_file: Path) -> None:
        super().__init__(NAME, run_dir, log_file)
        self.bootstrap_servers = f"{LOOPBACK}:{port}"
        self._directory = directory.resolve()
        self._port = port

    def start(self) -> None:
        """Start it and wait until a client is answered; not to be called where an event loop runs.

        Raises:
            Misconfigured: the package is missing, the port is taken or the directory cannot be used.
            Unavailable: it did not come up; the detail quotes the end of its log.
        """
        stop_leftover(NAME, self.run_dir, timeout_s=STOP_TIMEOUT_S)
        require_free(self._port, "--broker-port")
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            options = ["start", "--only", "kafka", "--host", LOOPBACK, "--kafka-port", str(self._port)]
            options += ["--data-dir", str(self._directory)]
            self._child = Child.start(
                NAME,
                [_binary(), *options],
                run_dir=self.run_dir,
                log=self.log_file,
            )
        except OSError as error:
            raise Misconfigured(
                f"the broker directory {self._directory} cannot be used: {error}", code="unusable_directory"
            ) from error
        # A factory keeps the runner from touching the thread's current event loop, which may be a caller's.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(self._wait_until_ready(self._child))

    def stop(self) -> None:
        """Let it save and wait for its end."""
        if self._child is not None:
            self._child.stop(STOP_TIMEOUT_S)
            self._child = None

    async def _wait_until_ready(self, child: Child) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not await _answers(self._port):
            if child.exit_code is not None:
                raise Unavailable(f"the broker did not start: {child.output()}")
            if time.monotonic() > deadline:
                raise Unavailable(f"the broker did not answer within {START_TIMEOUT_S:.0f} s")
            await asyncio.sleep(0.05)


async def _answers(port: int) -> bool:
    try:
        # The client logs an error for every refused connection: ask it only once the port is open.
        _, writer = await asyncio.wait_for(asyncio.open_connection(LOOPBACK, port), REQUEST_TIMEOUT_S)
        writer.close()
        await writer.wait_closed()
    except OSError:
        return False
    admin = AIOKafkaAdminClient(
        bootstrap_servers=f"{LOOPBACK}:{port}", request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000)
    )
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S * 2):
            await admin.start()
            await admin.list_topics()
    except (KafkaError, OSError):
        return False
    finally:
        await admin.close()
    return True


def _binary() -> Path:
    # The package's own command is a wrapper that dies of SIGTERM without passing it on.
    spec = find_spec("noida_db")
    if spec is None or not spec.submodule_search_locations:
        raise Misconfigured("the package noida-db is missing: pip install 'kbmesh[embedded]'")
    binary = Path(spec.submodule_search_locations[0]) / "noida-db"
    if not binary.stat().st_mode & 0o100:
        binary.chmod(0o755)
    return binary
