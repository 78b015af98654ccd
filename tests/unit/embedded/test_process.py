import json
import signal
import sys
from pathlib import Path

import psutil
import pytest

from deploy.embedded.process import Child, stop_leftover

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]
WITH_CHILD = [
    sys.executable,
    "-c",
    "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)",
]


def start(command: list[str], directory: Path) -> Child:
    """Returns once the child has written its first line, so that its signal handlers are in place."""
    child = Child.start("part", command, run_dir=directory / "run", log=directory / "logs" / "part.log")
    while not child.output():
        assert child.exit_code is None
    return child


def test_a_child_is_asked_to_stop_before_it_is_killed(tmp_path: Path) -> None:
    child = start(SLEEP, tmp_path)

    child.stop(timeout_s=10)

    assert child.exit_code == -signal.SIGTERM


def test_a_child_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    child = start(STUBBORN, tmp_path)

    child.stop(timeout_s=0.2)

    assert child.exit_code == -signal.SIGKILL


def test_stopping_a_child_ends_the_processes_it_started(tmp_path: Path) -> None:
    child = start(WITH_CHILD, tmp_path)
    grandchild = psutil.Process(int(child.output()))

    child.stop(timeout_s=10)

    grandchild.wait(timeout=10)
    assert not grandchild.is_running()


def test_the_output_of_a_child_is_only_its_own(tmp_path: Path) -> None:
    start(SLEEP, tmp_path).stop(timeout_s=10)
    child = Child.start(
        "part", [sys.executable, "-c", "print('second')"], run_dir=tmp_path, log=tmp_path / "logs" / "part.log"
    )
    child.process.wait(10)

    assert child.output() == "second"
    child.stop(timeout_s=1)


def test_a_later_run_stops_what_a_killed_one_left(tmp_path: Path) -> None:
    child = start(SLEEP, tmp_path)

    assert stop_leftover("part", tmp_path / "run", timeout_s=10) == child.process.pid

    assert not psutil.pid_exists(child.process.pid)
    assert not child.pid_file.exists()
    child.stop(timeout_s=10)


def test_a_process_that_only_has_the_number_of_a_leftover_is_left_alone(tmp_path: Path) -> None:
    child = start(SLEEP, tmp_path)
    recorded = json.loads(child.pid_file.read_text())
    child.pid_file.write_text(json.dumps(recorded | {"started": recorded["started"] - 1}))

    assert stop_leftover("part", tmp_path / "run", timeout_s=10) is None

    assert child.exit_code is None
    child.stop(timeout_s=10)


@pytest.mark.parametrize("content", [None, "", "{", '{"pid": 99999999, "started": 0}'])
def test_a_missing_or_broken_record_of_a_leftover_is_no_obstacle(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "part.pid").write_text(content)

    assert stop_leftover("part", tmp_path, timeout_s=1) is None


def test_a_log_that_has_grown_too_large_is_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.embedded.process.MAX_LOG_BYTES", 2)
    for _ in range(2):
        start(SLEEP, tmp_path).stop(timeout_s=10)

    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["part.log", "part.log.1"]
