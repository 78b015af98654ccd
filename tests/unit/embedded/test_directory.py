import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from deploy.embedded.directory import DataDirectory
from kbmesh.errors import Misconfigured

HOLD = """
import os, sys, time
from pathlib import Path
from types import SimpleNamespace
from deploy.embedded.directory import DataDirectory
with DataDirectory(Path(sys.argv[1])).held(os.getpid()):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_stack_in_one_directory_is_told_who_holds_it_and_what_to_do(tmp_path: Path) -> None:
    first, second = DataDirectory(tmp_path / "data"), DataDirectory(tmp_path / "data")

    with first.held(os.getpid()), pytest.raises(Misconfigured) as failure, second.held(os.getpid()):
        pass

    assert failure.value.code == "already_running"
    assert f"process {os.getpid()}" in failure.value.detail
    assert "--data-dir" in failure.value.detail


def test_the_holder_is_known_while_it_runs_and_not_after(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    with directory.held(4711):
        assert directory.holder() == 4711

    assert directory.holder() is None


def test_a_killed_stack_does_not_keep_its_directory(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert DataDirectory(tmp_path).holder() == process.pid
        process.kill()

    with DataDirectory(tmp_path).held(os.getpid()):
        assert DataDirectory(tmp_path).holder() == os.getpid()


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(Misconfigured, match="cannot be used") as failure, DataDirectory(tmp_path / "file").held(1):
        pass

    assert failure.value.code == "unusable_directory"


def test_too_little_room_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=300 * 1024**2))

    with pytest.raises(Misconfigured, match="only 300 MiB are free") as failure:
        DataDirectory(tmp_path).require_space()

    assert failure.value.code == "disk_full"
