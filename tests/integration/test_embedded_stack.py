import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest

from deploy.embedded.directory import DataDirectory
from deploy.embedded.ports import LOOPBACK, require_free
from deploy.embedded.process import stop_leftover
from deploy.embedded.service import Probe, grpc_probe, http_probe
from deploy.embedded.stack import SERVICES, StackOptions, running_stack
from kbmesh.errors import Misconfigured

PARTS = (*SERVICES, "broker", "postgres")


def process_of(data_dir: Path, part: str) -> psutil.Process:
    return psutil.Process(json.loads((DataDirectory(data_dir).run / f"{part}.pid").read_text())["pid"])


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kbmesh-test-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        yield directory
        for part in PARTS:
            stop_leftover(part, DataDirectory(directory).run, timeout_s=10)


@pytest.fixture
def options(data_dir: Path) -> StackOptions:
    return StackOptions.throwaway(data_dir)


async def killed_and_restarted(options: StackOptions, part: str, probe: Probe) -> None:
    killed = process_of(options.data_dir, part)
    killed.kill()

    async def restarted() -> bool:
        try:
            return process_of(options.data_dir, part) != killed and await probe()
        except (FileNotFoundError, psutil.NoSuchProcess):
            return False

    async with asyncio.timeout(120):
        while not await restarted():
            await asyncio.sleep(0.1)


class Runner:
    """`python -m deploy.embedded up` as a person starts it."""

    def __init__(self, options: StackOptions) -> None:
        flags = [part for flag, port in options.ports.items() for part in (flag, str(port))]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "deploy.embedded", "up", "--data-dir", options.data_dir, *flags],
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, line: str) -> None:
        assert self.process.stdout is not None
        assert f"{line}\n" in self.process.stdout, "it ended early"

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        self.process.communicate(timeout=90)
        return self.process.returncode


@pytest.mark.parametrize("flag", list(StackOptions(data_dir=Path()).ports))
async def test_a_taken_port_is_named_with_the_flag_that_moves_it(options: StackOptions, flag: str) -> None:
    with socket.socket() as holder:
        holder.bind((LOOPBACK, options.ports[flag]))
        holder.listen()

        with pytest.raises(Misconfigured) as failure:
            async with running_stack(options):
                pass

    assert failure.value.detail.startswith(f"port {options.ports[flag]} is taken by ")
    assert failure.value.detail.endswith(f"choose another with {flag}")


async def test_one_port_for_two_servers_is_refused(options: StackOptions) -> None:
    with pytest.raises(Misconfigured, match="is given to --search-port and --skills-port"):
        async with running_stack(replace(options, skills_port=options.search_port)):
            pass


@pytest.mark.broker
@pytest.mark.timeout(400)
async def test_a_stack_takes_over_from_a_killed_one_heals_and_stops_completely(options: StackOptions) -> None:
    url = f"http://{LOOPBACK}:{options.http_port}/knowledge-bases"
    async with httpx.AsyncClient(timeout=10) as http:
        killed = Runner(options)
        await asyncio.to_thread(killed.wait_for, "kbmesh is ready.")
        created = (await http.post(url, json={"name": "Kept"})).json()
        await asyncio.to_thread(killed.end, signal.SIGKILL)
        left_behind = [process_of(options.data_dir, part) for part in PARTS]

        async with running_stack(options) as addresses:
            assert not any(process.is_running() for process in left_behind)
            assert (await http.get(f"{url}/{created['id']}")).json().items() >= created.items()
            await killed_and_restarted(options, "skills", grpc_probe(addresses.skills))
            await killed_and_restarted(options, "postgres", http_probe(f"{addresses.http_url}/health/ready"))
            assert (await http.get(f"{url}/{created['id']}")).json().items() >= created.items()
            running = [process_of(options.data_dir, part) for part in PARTS]

    assert not any(process.is_running() for process in running)
    for flag, port in options.ports.items():
        require_free(port, flag)


@pytest.mark.broker
def test_ctrl_c_during_the_start_stops_what_has_started(options: StackOptions) -> None:
    runner = Runner(options)
    database = DataDirectory(options.data_dir).run / "postgres.pid"
    deadline = time.monotonic() + 60
    while not database.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process = process_of(options.data_dir, "postgres")

    assert runner.end(signal.SIGINT) == 0

    assert not process.is_running()
    assert os.listdir(DataDirectory(options.data_dir).run) == []
