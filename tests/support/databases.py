"""Throw-away databases on one server."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit, urlunsplit

from deploy.embedded.postgres import query

_serial = count(1)


@dataclass(frozen=True)
class DatabaseServer:
    """`dsn` is that of its maintenance database."""

    dsn: str

    def dsn_of(self, database: str) -> str:
        return urlunsplit(urlsplit(self.dsn)._replace(path=f"/{database}"))

    @staticmethod
    def name_of(dsn: str) -> str:
        return urlsplit(dsn).path.removeprefix("/")

    @contextmanager
    def database(self, *, template: str | None = None) -> Iterator[str]:
        """DSN of a new database, a copy of `template` or an empty one; dropped at the end."""
        name = f"test_{next(_serial)}"
        query(self.dsn, f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else ""))
        try:
            yield self.dsn_of(name)
        finally:
            query(self.dsn, f"DROP DATABASE {name} WITH (FORCE)")
