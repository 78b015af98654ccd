"""One of the four services as a child process, and how to tell that it is ready."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.embedded.process import Child, Part, stop_leftover
from kbmesh.errors import Unavailable

STOP_TIMEOUT_S: Final = 20.0
READY_TIMEOUT_S: Final = 180.0  # a first start reads torch and the model from a cold disk
PROBE_TIMEOUT_S: Final = 2.0
PROBE_INTERVAL_S: Final = 0.1

Probe = Callable[[], Awaitable[bool]]


class Service(Part):
    """`python -m services.NAME` with `env` as its whole environment."""

    def __init__(self, name: str, *, env: Mapping[str, str], probe: Probe, run_dir: Path, log_file: Path) -> None:
        super().__init__(name, run_dir, log_file)
        self._env = env
        self._probe = probe

    def start(self) -> None:
        """Returns at once; `wait_until_ready` waits."""
        stop_leftover(self.name, self.run_dir, timeout_s=STOP_TIMEOUT_S)
        try:
            self._child = Child.start(
                self.name,
                [sys.executable, "-m", f"services.{self.name}"],
                run_dir=self.run_dir,
                log=self.log_file,
                env=self._env,
            )
        except OSError as error:
            raise Unavailable(f"{self.name} cannot be started: {error}") from error

    def stop(self) -> None:
        if self._child is not None:
            self._child.stop(STOP_TIMEOUT_S)
            self._child = None

    async def wait_until_ready(self) -> None:
        """Raises `Unavailable`, with the end of its log, when it ends or does not get ready in time."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while not await self._probe():
                    if not self.running:
                        ending = f"{self.name} ended with code {self.exit_code}"
                        raise Unavailable(f"{ending}; {self.log_file} says\n{self.last_words()}")
                    await asyncio.sleep(PROBE_INTERVAL_S)
        except TimeoutError:
            raise Unavailable(
                f"{self.name} was not ready after {READY_TIMEOUT_S:.0f} s; see {self.log_file}"
            ) from None


def http_probe(url: str) -> Probe:
    """Ready when a GET of `url` answers 200."""

    async def ready() -> bool:
        async with httpx.AsyncClient(timeout=PROBE_TIMEOUT_S, trust_env=False) as client:
            try:
                return (await client.get(url)).status_code == httpx.codes.OK
            except httpx.TransportError:
                return False

    return ready


def grpc_probe(target: str) -> Probe:
    """Ready when the standard health service at `target` says SERVING."""

    async def ready() -> bool:
        # Not through a proxy that the environment may name: this is loopback.
        async with grpc.aio.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
            health: Any = health_pb2_grpc.HealthStub(channel)
            try:
                answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=PROBE_TIMEOUT_S)
            except grpc.aio.AioRpcError:
                return False
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    return ready
