import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable

from kbmesh.errors import DeadlineExceeded, InvalidArgument, TooLarge
from services.ingest.domain.content_type import HEAD_BYTES, ContentType, sniff_head


async def on_time(body: AsyncIterator[bytes], idle_timeout_s: float) -> AsyncIterator[bytes]:
    """A body, piece by piece, none of them empty. Raises DeadlineExceeded: nothing came for too long."""
    while True:
        try:
            async with asyncio.timeout(idle_timeout_s):
                data = await anext(body, None)
        except TimeoutError:
            raise DeadlineExceeded(
                f"the upload stood still for {idle_timeout_s:g} s", code="upload_stalled"
            ) from None
        if data is None:
            return
        if data:
            yield data


class UploadStream:
    """Passes a body through while it hashes, counts and judges it; never holds more than the head.

    `content_type`, `size` (bytes) and `digest` (SHA-256) are there once `chunks` is exhausted.
    """

    content_type: ContentType

    def __init__(self, body: AsyncIterator[bytes], filename: Callable[[], str], max_bytes: int) -> None:
        self.size = 0
        self._body = body
        self._filename = filename
        self._max_bytes = max_bytes
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> bytes:
        return self._hash.digest()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body.

        Raises:
            InvalidArgument: it is empty.
            UnsupportedType: by its head it is nothing that can be extracted.
            TooLarge: as soon as it passes the limit.
        """
        body = self._metered()
        head = b""
        async for data in body:
            head += data
            if len(head) >= HEAD_BYTES:
                break
        if not head:
            raise InvalidArgument("the file is empty", code="empty_file")
        self.content_type = sniff_head(head[:HEAD_BYTES], self._filename())
        yield head
        async for data in body:
            yield data

    async def _metered(self) -> AsyncIterator[bytes]:
        async for data in self._body:
            self.size += len(data)
            if self.size > self._max_bytes:
                raise TooLarge(f"the file is larger than {self._max_bytes} bytes")
            self._hash.update(data)
            yield data
