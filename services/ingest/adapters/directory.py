import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final
from uuid import uuid4

from kbmesh.errors import NotFound, Unavailable

READ_BYTES: Final = 256 * 1024
LIST_PAGE: Final = 1000


class DirectoryStore:
    """Objects as files under one directory, for a single machine. A file appears whole or not at all."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    async def put(self, key: str, body: AsyncIterator[bytes]) -> None:
        target = self._path(key)
        incoming = self._root / ".incoming" / uuid4().hex
        with _translated():
            file = await asyncio.to_thread(_create, incoming)
        try:
            async for data in body:
                with _translated():
                    await asyncio.to_thread(file.write, data)
            with _translated():
                await asyncio.to_thread(_finish, file, incoming, target)
        finally:
            file.close()
            incoming.unlink(missing_ok=True)

    async def fetch(self, key: str, path: Path) -> None:
        with _translated():
            await asyncio.to_thread(shutil.copyfile, self._path(key), path)

    async def read(self, key: str) -> AsyncGenerator[bytes, None]:
        with _translated():
            file = await asyncio.to_thread(self._path(key).open, "rb")
        try:
            while data := await _read(file):
                yield data
        finally:
            file.close()

    async def delete(self, key: str) -> None:
        with _translated():
            await asyncio.to_thread(self._path(key).unlink, missing_ok=True)

    async def exists(self, key: str) -> bool:
        with _translated():
            return await asyncio.to_thread(self._path(key).is_file)

    async def keys(self, older_than: datetime) -> AsyncGenerator[str, None]:
        found = _walk(self._root, older_than.timestamp())
        while page := await _next_page(found):
            for key in page:
                yield key

    async def check(self) -> None:
        with _translated():
            await asyncio.to_thread(_probe, self._root)

    def _path(self, key: str) -> Path:
        path = (self._root / key).resolve()
        if not path.is_relative_to(self._root) or path == self._root:
            raise NotFound("no such object", code="object_not_found")
        return path


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound("no such object", code="object_not_found") from error
    except OSError as error:
        detail = f"the object store cannot be used: {os.strerror(error.errno or 0)}"
        raise Unavailable(detail, code="store_unavailable") from error


async def _read(file: IO[bytes]) -> bytes:
    with _translated():
        return await asyncio.to_thread(file.read, READ_BYTES)


def _create(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("xb")


def _finish(file: IO[bytes], incoming: Path, target: Path) -> None:
    """Makes the file durable before it gets its name, and then the name."""
    file.flush()
    os.fsync(file.fileno())
    target.parent.mkdir(parents=True, exist_ok=True)
    incoming.replace(target)
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


async def _next_page(found: Iterator[str]) -> list[str]:
    with _translated():
        return await asyncio.to_thread(lambda: list(islice(found, LIST_PAGE)))


def _walk(folder: os.PathLike[str], older_than_s: float, prefix: str = "") -> Iterator[str]:
    """Keys of the files below a folder; what goes away meanwhile is passed over."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            key = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry, older_than_s, f"{key}/")
                continue
            with suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < older_than_s:
                    yield key


def _probe(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=root):
        pass
