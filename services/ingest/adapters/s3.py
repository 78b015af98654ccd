import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, TypeVar, cast

import urllib3
from minio import Minio
from minio.error import MinioException, S3Error

from kbmesh.errors import NotFound, Unavailable

LIST_PAGE: Final = 1000
PART_BYTES: Final = 8 * 1024 * 1024
READ_BYTES: Final = 256 * 1024
CONNECT_TIMEOUT_S: Final = 5
READ_TIMEOUT_S: Final = 30
PULL_TIMEOUT_S: Final = 300

T = TypeVar("T")


class S3Store:
    """Objects in a bucket of any S3 server. `minio` is synchronous, so it has threads of its own."""

    def __init__(
        self,
        *,
        endpoint: str,
        bucket: str,
        access_key: str,
        secret_key: str,
        secure: bool,
        region: str,
        threads: int,
    ) -> None:
        self._bucket = bucket
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="s3")
        self._http = urllib3.PoolManager(
            maxsize=threads,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=READ_TIMEOUT_S),
            retries=urllib3.Retry(total=2, backoff_factor=0.2, status_forcelist=[500, 502, 503, 504]),
        )
        self._client = Minio(
            endpoint,
            access_key=access_key,
            secret_key=secret_key,
            secure=secure,
            region=region,
            http_client=self._http,
        )

    async def put(self, key: str, body: AsyncIterator[bytes]) -> None:
        reader = _BodyReader(body, asyncio.get_running_loop())
        upload = partial(
            self._client.put_object,
            self._bucket,
            key,
            cast("BinaryIO", reader),
            length=-1,
            part_size=PART_BYTES,
            num_parallel_uploads=1,
        )
        try:
            await self._run(upload)
        finally:
            reader.abort()

    async def fetch(self, key: str, path: Path) -> None:
        await self._run(partial(self._client.fget_object, self._bucket, key, str(path)))

    async def read(self, key: str) -> AsyncGenerator[bytes, None]:
        response = await self._run(partial(self._client.get_object, self._bucket, key))
        try:
            while data := await self._run(partial(response.read, READ_BYTES)):
                yield data
        finally:
            # In a thread: a read that was given up may hold the response until it times out.
            self._threads.submit(response.close)

    async def delete(self, key: str) -> None:
        await self._run(partial(self._client.remove_object, self._bucket, key))

    async def exists(self, key: str) -> bool:
        try:
            await self._run(partial(self._client.stat_object, self._bucket, key))
        except NotFound:
            return False
        return True

    async def keys(self, older_than: datetime) -> AsyncGenerator[str, None]:
        objects = self._client.list_objects(self._bucket, recursive=True)
        while page := await self._run(lambda: [*islice(objects, LIST_PAGE)]):
            for found in page:
                if found.last_modified is not None and found.last_modified < older_than:
                    yield str(found.object_name)

    async def check(self) -> None:
        if not await self._run(partial(self._client.bucket_exists, self._bucket)):
            raise Unavailable(f"the bucket {self._bucket} does not exist", code="store_unavailable")

    async def create_bucket(self) -> None:
        """Creates the bucket unless it is there."""
        if not await self._run(partial(self._client.bucket_exists, self._bucket)):
            await self._run(partial(self._client.make_bucket, self._bucket))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._http.clear()

    async def _run(self, call: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except S3Error as error:
            if error.code == "NoSuchKey":
                raise NotFound("no such object", code="object_not_found") from error
            raise Unavailable(f"the object store refuses: {error.code}", code="store_unavailable") from error
        except (MinioException, urllib3.exceptions.HTTPError, OSError) as error:
            raise Unavailable(
                f"the object store does not answer ({type(error).__name__})", code="store_unavailable"
            ) from error


class _BodyReader:
    """An asynchronous stream as the file that `minio` reads in its thread, pulled as it reads."""

    def __init__(self, body: AsyncIterator[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._body = body
        self._loop = loop
        self._rest = b""
        self._pull: Future[bytes | None] | None = None
        self._aborted = False

    def read(self, size: int) -> bytes:
        while not self._rest:
            if self._aborted:
                raise OSError("the upload was given up")
            self._pull = asyncio.run_coroutine_threadsafe(self._next(), self._loop)
            data = self._pull.result(PULL_TIMEOUT_S)
            if data is None:
                return b""
            self._rest = data
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def abort(self) -> None:
        """Frees the reading thread, should it still wait."""
        self._aborted = True
        if self._pull is not None:
            self._pull.cancel()

    async def _next(self) -> bytes | None:
        return await anext(self._body, None)
