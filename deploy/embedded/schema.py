"""Writes `kbmesh/postgres/schema.sql` from the migrations, with a database that lives as long as that takes."""

import os
import tempfile
from pathlib import Path

from deploy.embedded.postgres import EmbeddedPostgres, binaries
from kbmesh.postgres.migrate import SCHEMA, dump_schema, migrate


def main() -> None:
    os.environ["PATH"] = os.pathsep.join([str(binaries()), os.environ.get("PATH", os.defpath)])
    with tempfile.TemporaryDirectory(prefix="kbmesh-") as name:
        directory = Path(name)
        server = EmbeddedPostgres(
            directory / "pg", run_dir=directory, log_file=directory / "postgres.log", durable=False
        )
        with server:
            dsn = server.ensure_database("kbmesh")
            migrate(dsn)
            dump_schema(dsn)
    print(f"wrote {SCHEMA}")


if __name__ == "__main__":
    main()
