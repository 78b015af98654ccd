"""The one directory that holds everything of an embedded stack."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kbmesh.errors import Misconfigured

MIN_FREE_BYTES: Final = 1024**3


@dataclass(frozen=True)
class DataDirectory:
    """`root` and what lies in it."""

    root: Path

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def broker(self) -> Path:
        return self.root / "broker"

    @property
    def objects(self) -> Path:
        return self.root / "objects"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    def log(self, name: str) -> Path:
        return self.root / "logs" / f"{name}.log"

    @contextmanager
    def held(self, pid: int) -> Iterator[None]:
        """Create it if need be and keep every other stack out of it.

        Raises:
            Misconfigured: it cannot be used (`unusable_directory`), or another stack holds it (`already_running`).
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.lock.touch()
            file = self.lock.open("r+")
        except OSError as error:
            raise Misconfigured(
                f"{self.root} cannot be used ({error.strerror}), choose another directory with --data-dir",
                code="unusable_directory",
            ) from error
        with file:
            try:
                # The kernel lets go of it when this process ends, however that comes.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Misconfigured(
                    f"a stack (process {self.holder()}) already runs in {self.root}: stop it, or choose another "
                    "directory with --data-dir",
                    code="already_running",
                ) from None
            file.write(f"{pid:<20}")  # one width, so that it is never read half-replaced
            file.flush()
            yield

    def holder(self) -> int | None:
        """Process id of the stack that runs in it, if one does."""
        if not self.lock.exists():
            return None
        with self.lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read())
        return None

    def require_space(self) -> None:
        """Raise `Misconfigured` (`disk_full`) unless there is room to work."""
        free = shutil.disk_usage(self.root).free
        if free < MIN_FREE_BYTES:
            raise Misconfigured(
                f"only {free // 1024**2} MiB are free on the disk of {self.root}, {MIN_FREE_BYTES // 1024**2} MiB "
                "are needed: make room, or choose another directory with --data-dir",
                code="disk_full",
            )
