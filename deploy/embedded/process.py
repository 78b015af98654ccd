"""Child processes that the next run finds again when this one was killed before it could stop them."""

import json
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

KILL_GRACE_S: Final = 5.0
TAIL_BYTES: Final = 4000
MAX_LOG_BYTES: Final = 32 * 1024**2  # checked at each start; one older file is kept


@dataclass
class Child:
    """A process that leads a session of its own, so that Ctrl-C in a terminal reaches the runner alone."""

    name: str
    pid_file: Path
    log: Path
    log_start: int
    process: subprocess.Popen[bytes] = field(repr=False)

    @classmethod
    def start(
        cls,
        name: str,
        command: Sequence[str | Path],
        *,
        run_dir: Path,
        log: Path,
        env: Mapping[str, str] | None = None,
        user: int | None = None,
        group: int | None = None,
    ) -> Self:
        """Start `command` with both its streams appended to `log`.

        Raises:
            OSError: the command cannot be started.
        """
        run_dir.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
            log.replace(log.with_name(f"{log.name}.1"))
        with log.open("ab") as output:
            log_start = output.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
                user=user,
                group=group,
                extra_groups=None if user is None else (),
            )
        child = cls(name, _pid_file(run_dir, name), log, log_start, process)
        # Process ids are used again, above all in containers; with its start time a process is unmistakable.
        started = psutil.Process(process.pid).create_time()
        half_written = child.pid_file.with_suffix(".new")
        half_written.write_text(json.dumps({"pid": process.pid, "started": started}))
        half_written.replace(child.pid_file)
        return child

    @property
    def exit_code(self) -> int | None:
        """None while it runs, negative after a signal."""
        return self.process.poll()

    def output(self, lines: int = 5) -> str:
        """The last lines it has written."""
        with self.log.open("rb") as log:
            log.seek(max(self.log_start, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])

    def stop(self, timeout_s: float, how: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to stop, and kill what is left of its session when it has, or after `timeout_s`."""
        if self.exit_code is None:
            self.process.send_signal(how)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)
        _kill_session(self.process.pid)
        self.process.wait(KILL_GRACE_S)
        self.pid_file.unlink(missing_ok=True)


class Part(ABC):
    """Something of the stack that runs as one child process and can be started again when it has died."""

    def __init__(self, name: str, run_dir: Path, log_file: Path) -> None:
        self.name = name
        self.run_dir = run_dir
        self.log_file = log_file
        self._child: Child | None = None

    @abstractmethod
    def start(self) -> None:
        """Blocks until it runs. Raises a `KbmeshError` that says what is wrong."""

    @abstractmethod
    def stop(self) -> None:
        """Blocks until it has ended, for a bounded time; nothing happens if it does not run."""

    def restart(self) -> None:
        """Start it again after it died, without what its last life may have left running."""
        if self._child is not None:
            _kill_session(self._child.process.pid)
        self.start()

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """Of its last life; None while it runs and before its first start."""
        return None if self._child is None else self._child.exit_code

    def last_words(self) -> str:
        """The end of what it has written in its last life."""
        return "" if self._child is None else self._child.output()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def stop_leftover(
    name: str, run_dir: Path, *, timeout_s: float, how: signal.Signals = signal.SIGTERM
) -> int | None:
    """Stop the child of that name which an earlier run left behind; its pid, or None if there is none."""
    pid_file = _pid_file(run_dir, name)
    try:
        recorded = json.loads(pid_file.read_text())
        pid = int(recorded["pid"])
        process = psutil.Process(pid)
        if process.create_time() != recorded["started"]:
            return None
        process.send_signal(how)
        with suppress(psutil.TimeoutExpired):
            process.wait(timeout_s)
        _kill_session(pid)
        process.wait(KILL_GRACE_S)
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
        return None
    finally:
        pid_file.unlink(missing_ok=True)
    return pid


def _pid_file(run_dir: Path, name: str) -> Path:
    return run_dir / f"{name}.pid"


def _kill_session(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
