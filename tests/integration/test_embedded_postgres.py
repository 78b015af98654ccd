import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deploy.embedded.postgres import EmbeddedPostgres, query
from deploy.embedded.process import stop_leftover
from kbmesh.errors import KbmeshError, Misconfigured, Unavailable
from kbmesh.postgres.migrate import migrate

RUNNER = """
import sys, time
from pathlib import Path
from deploy.embedded.postgres import EmbeddedPostgres, query
directory = Path(sys.argv[1])
log = directory / "postgres.log"
server = EmbeddedPostgres(directory / "postgres", run_dir=directory, log_file=log, durable=False)
server.start()
query(server.ensure_database("kbmesh"), "CREATE TABLE kept AS SELECT 1 AS n")
print("started", flush=True)
time.sleep(60)
"""


def server_in(directory: Path) -> EmbeddedPostgres:
    return EmbeddedPostgres(
        directory / "postgres", run_dir=directory, log_file=directory / "postgres.log", durable=False
    )


def postmaster(server: EmbeddedPostgres) -> psutil.Process:
    return psutil.Process(int((server.directory / "postmaster.pid").read_text().split()[0]))


@pytest.fixture
def killed_runner(tmp_path: Path) -> Iterator[Path]:
    """A directory whose server runs on after its runner was killed."""
    with subprocess.Popen([sys.executable, "-c", RUNNER, str(tmp_path)], stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        assert b"started\n" in runner.stdout
        runner.kill()
    yield tmp_path
    stop_leftover("postgres", tmp_path, timeout_s=10, how=signal.SIGINT)


def test_a_second_start_finds_the_data_of_the_first(tmp_path: Path) -> None:
    with server_in(tmp_path) as server:
        query(server.ensure_database("kbmesh"), "CREATE TABLE kept AS SELECT 1 AS n")
        process = postmaster(server)
    assert not process.is_running()

    with server_in(tmp_path) as server:
        assert query(server.ensure_database("kbmesh"), "SELECT n FROM kept") == "1\n"


def test_after_a_killed_runner_the_next_start_takes_over_and_finds_the_data(killed_runner: Path) -> None:
    left_behind = postmaster(server_in(killed_runner))
    assert left_behind.is_running()

    with server_in(killed_runner) as server:
        assert query(server.dsn("kbmesh"), "SELECT n FROM kept") == "1\n"
        assert postmaster(server) != left_behind
    assert not left_behind.is_running()


def test_a_lock_file_whose_process_id_belongs_to_another_program_is_no_obstacle(killed_runner: Path) -> None:
    server = server_in(killed_runner)
    process = postmaster(server)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    lock = server.directory / "postmaster.pid"
    owner = lock.stat()
    with subprocess.Popen(["sleep", "20"], user=owner.st_uid if os.geteuid() == 0 else None) as other:
        _, rest = lock.read_text().split("\n", 1)
        lock.write_text(f"{other.pid}\n{rest}")

        with server:
            assert query(server.dsn("kbmesh"), "SELECT n FROM kept") == "1\n"

        assert other.poll() is None
        other.kill()


def test_a_restart_after_a_crash_keeps_the_address(tmp_path: Path) -> None:
    with server_in(tmp_path / ("long" * 30)) as server:
        dsn = server.ensure_database("kbmesh")
        process = postmaster(server)
        process.kill()
        process.wait(10)
        assert not server.running

        server.restart()

        assert query(dsn, "SELECT 1") == "1\n"


def test_a_directory_name_with_spaces_and_signs_works_for_every_client(tmp_path: Path) -> None:
    with server_in(tmp_path / "Köln & co, 100% ?") as server:
        migrate(server.ensure_database("kbmesh"))


def test_a_start_that_was_cut_short_during_initialisation_is_begun_again(tmp_path: Path) -> None:
    half = tmp_path / "postgres.new"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")

    with server_in(tmp_path) as server:
        assert query(server.dsn("postgres"), "SELECT 1") == "1\n"


def test_a_directory_that_holds_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "thesis.txt").write_text("two years of work")

    with pytest.raises(Misconfigured, match="cannot be used") as failure, server_in(tmp_path):
        pass

    assert failure.value.code == "unusable_directory"
    assert (tmp_path / "postgres" / "thesis.txt").read_text() == "two years of work"


def test_a_directory_that_cannot_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    server = EmbeddedPostgres(tmp_path / "file" / "postgres", run_dir=tmp_path, log_file=tmp_path / "log")

    with pytest.raises(Misconfigured, match="cannot be used"), server:
        pass


def test_a_damaged_database_is_reported_with_what_the_server_says(tmp_path: Path) -> None:
    with server_in(tmp_path) as server:
        pass
    (server.directory / "global" / "pg_control").unlink()

    with pytest.raises(Unavailable, match="pg_control"), server:
        pass


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="mounts a small disk, as root only")
def test_a_full_disk_is_named_as_the_reason(tmp_path: Path) -> None:
    attempt = textwrap.dedent("""
        import sys
        from pathlib import Path
        from deploy.embedded.postgres import EmbeddedPostgres
        from kbmesh.errors import Misconfigured
        disk = Path(sys.argv[1])
        try:
            EmbeddedPostgres(disk / "postgres", run_dir=disk.parent, log_file=disk.parent / "log").start()
        except Misconfigured as error:
            print(error.code)
    """)
    disk = tmp_path / "disk"
    disk.mkdir()
    script = 'mount -t tmpfs -o size=16m none "$1" && exec "$2" -c "$3" "$1"'

    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", disk, sys.executable, attempt],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.stdout.endswith("disk_full\n")


def test_queries_fail_with_the_message_of_the_server(empty_database_dsn: str) -> None:
    with pytest.raises(KbmeshError, match='relation "nowhere" does not exist'):
        query(empty_database_dsn, "SELECT * FROM nowhere")
