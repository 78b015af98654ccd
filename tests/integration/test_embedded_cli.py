import os
import socket
import subprocess
import sys
from pathlib import Path

from deploy.embedded.directory import DataDirectory
from deploy.embedded.ports import LOOPBACK


def run(command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deploy.embedded", command, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_taken_port_ends_the_start_with_advice_and_no_traceback(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind((LOOPBACK, 0))
        holder.listen()
        port = holder.getsockname()[1]

        done = run("up", "--data-dir", tmp_path, "--http-port", str(port))

    assert done.returncode == 2
    assert done.stderr.startswith(f"cannot start: port {port} is taken by ")
    assert done.stderr.endswith("choose another with --http-port\n")


def test_a_second_stack_in_one_directory_is_refused(tmp_path: Path) -> None:
    with DataDirectory(tmp_path).held(os.getpid()):
        done = run("up", "--data-dir", tmp_path)

    assert done.returncode == 2
    assert done.stderr.startswith(f"cannot start: a stack (process {os.getpid()}) already runs in {tmp_path}")


def test_a_data_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    done = run("up", "--data-dir", tmp_path / "file" / "data")

    assert done.returncode == 2
    assert done.stderr.startswith(f"cannot start: {tmp_path}/file/data cannot be used")


def test_down_without_a_stack_says_so(tmp_path: Path) -> None:
    done = run("down", "--data-dir", tmp_path)

    assert (done.returncode, done.stdout) == (0, f"nothing runs in {tmp_path}\n")
