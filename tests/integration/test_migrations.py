import os
from pathlib import Path

import pytest

from deploy.embedded.postgres import binaries, query
from kbmesh.postgres.migrate import SCHEMA, MigrationFailed, dump_schema, migrate, rollback
from tests.support.databases import DatabaseServer

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"


@pytest.fixture
def pg_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(binaries()), os.environ["PATH"]]))


@pytest.mark.usefixtures("pg_dump")
def test_migrating_an_empty_database_gives_the_committed_schema(empty_database_dsn: str, tmp_path: Path) -> None:
    migrate(empty_database_dsn)

    dump_schema(empty_database_dsn, tmp_path / "schema.sql")

    assert (tmp_path / "schema.sql").read_text() == SCHEMA.read_text(), "run `make schema` and commit the result"


def test_migrating_twice_changes_nothing(empty_database_dsn: str) -> None:
    migrate(empty_database_dsn)
    before = query(empty_database_dsn, "SELECT * FROM schema_migrations")

    migrate(empty_database_dsn)

    assert query(empty_database_dsn, "SELECT * FROM schema_migrations") == before


def test_every_migration_can_be_undone_and_applied_again(empty_database_dsn: str) -> None:
    migrate(empty_database_dsn)
    migrated = query(empty_database_dsn, TABLES)
    applied = int(query(empty_database_dsn, "SELECT count(*) FROM schema_migrations"))

    for _ in range(applied):
        rollback(empty_database_dsn)
    undone = query(empty_database_dsn, TABLES)
    migrate(empty_database_dsn)

    assert undone.split() == ["schema_migrations"]
    assert query(empty_database_dsn, TABLES) == migrated


def test_a_failed_migration_says_why_without_the_password() -> None:
    with pytest.raises(MigrationFailed, match="refused") as failure:
        migrate("postgresql://kbmesh:open-sesame@127.0.0.1:1/kbmesh")

    assert "open-sesame" not in str(failure.value)


def test_a_missing_database_is_named(database_server: DatabaseServer) -> None:
    with pytest.raises(MigrationFailed, match='"nowhere" does not exist'):
        migrate(database_server.dsn_of("nowhere"))
