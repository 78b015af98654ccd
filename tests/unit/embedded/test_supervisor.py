import asyncio
import json
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from deploy.embedded import supervisor
from deploy.embedded.process import Child, Part
from deploy.embedded.service import Service
from deploy.embedded.supervisor import in_thread, keep_running, surface_log
from kbmesh.errors import Unavailable


class Mortal(Part):
    """Lives until it is told to die; refuses to start as often as it is told to."""

    def __init__(self, directory: Path) -> None:
        super().__init__("mortal", directory, directory / "mortal.log")
        self.starts: list[int] = []
        self.refusals = 0

    def start(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise Unavailable("not today")
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        self._child = Child.start(self.name, command, run_dir=self.run_dir, log=self.log_file)
        self.starts.append(self._child.process.pid)

    def die(self) -> None:
        assert self._child is not None
        self._child.process.kill()
        self._child.process.wait(10)

    def stop(self) -> None:
        if self._child is not None:
            self._child.stop(10)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "POLL_S", 0.01)
    monkeypatch.setattr(supervisor, "BACKOFF_MIN_S", 0.01)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def until_started(part: Mortal, times: int) -> None:
    await until(lambda: len(part.starts) == times and part.running)


async def test_a_part_that_dies_is_started_again_and_the_log_says_so(tmp_path: Path) -> None:
    with Mortal(tmp_path) as part, capture_logs() as logs:
        watcher = asyncio.create_task(keep_running(part))
        for times in (2, 3):
            part.die()
            await until_started(part, times)
        watcher.cancel()

    assert len(set(part.starts)) == 3
    assert [entry["event"] for entry in logs][:2] == ["part_died", "part_restarted"]
    assert logs[0]["exit_code"] == -signal.SIGKILL


async def test_a_part_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    with Mortal(tmp_path) as part, capture_logs() as logs:
        watcher = asyncio.create_task(keep_running(part))
        part.refusals = 2
        part.die()
        await until_started(part, 2)
        watcher.cancel()

    assert [entry["reason"] for entry in logs if entry["event"] == "part_not_restarted"] == ["not today"] * 2


async def test_waits_between_restarts_grow_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "BACKOFF_MAX_S", 0.04)
    with Mortal(tmp_path) as part, capture_logs() as logs:
        watcher = asyncio.create_task(keep_running(part))
        for times in range(2, 6):
            part.die()
            await until_started(part, times)
        watcher.cancel()

    assert [entry["restart_in_s"] for entry in logs if entry["event"] == "part_died"] == [0.01, 0.02, 0.04, 0.04]


async def test_only_warnings_and_errors_of_a_log_reach_the_console(tmp_path: Path) -> None:
    part = Mortal(tmp_path)
    part.log_file.write_text(json.dumps({"level": "error", "event": "of_an_earlier_run"}) + "\n")

    with capture_logs() as logs:
        watcher = asyncio.create_task(surface_log(part))
        await asyncio.sleep(0)
        with part.log_file.open("a") as file:
            file.write(json.dumps({"level": "info", "event": "started"}) + "\n")
            file.write("not JSON\n")
            file.write(json.dumps({"level": "warning", "event": "slow_query", "document_id": "d1"}) + "\n")
            file.write('{"level": "error", "event": "cut ')
            file.flush()
            await asyncio.sleep(0.1)
            file.write('in two"}\n')
        await until(lambda: len(logs) == 2)
        watcher.cancel()

    assert [(entry["log_level"], entry["event"]) for entry in logs] == [
        ("warning", "mortal: slow_query"),
        ("error", "mortal: cut in two"),
    ]
    assert logs[0]["document_id"] == "d1"


async def test_a_cancelled_start_is_over_before_the_stop_that_follows() -> None:
    release = threading.Event()
    finished = False

    def start() -> None:
        nonlocal finished
        release.wait(10)
        finished = True

    starting = asyncio.create_task(in_thread(start))
    await asyncio.sleep(0.05)
    starting.cancel()
    asyncio.get_running_loop().call_later(0.05, release.set)

    with pytest.raises(asyncio.CancelledError):
        await starting
    assert finished


async def test_a_service_that_ends_before_it_is_ready_is_reported_with_its_last_words(tmp_path: Path) -> None:
    async def never() -> bool:
        return False

    service = Service("nosuch", env={}, probe=never, run_dir=tmp_path, log_file=tmp_path / "nosuch.log")
    with service, pytest.raises(Unavailable, match=r"No module named services\.nosuch"):
        await service.wait_until_ready()
