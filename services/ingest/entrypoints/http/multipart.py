from collections.abc import AsyncIterator
from typing import Final

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from kbmesh.errors import InvalidArgument

MAX_FIELD_BYTES: Final = 8 * 1024
MAX_PARTS: Final = 20
# As RFC 2046 has it; the parser has a limit too, and another error.
MAX_BOUNDARY_BYTES: Final = 70


class MultipartUpload:
    """One file and some small fields out of a multipart/form-data body, without keeping the file.

    `fields` and `filename` fill up as `file` is read; a field may stand before or behind the file.
    """

    def __init__(self, content_type: str, body: AsyncIterator[bytes]) -> None:
        """Raises InvalidArgument: the content type names no boundary, or one that is too long."""
        _, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if not boundary or len(boundary) > MAX_BOUNDARY_BYTES:
            raise InvalidArgument(
                "multipart/form-data needs a boundary, of up to 70 bytes", code="malformed_multipart"
            )
        self.fields: dict[str, str] = {}
        self.filename = ""
        self._body = body
        self._parts = 0
        self._found_file = False
        self._complete = False
        self._file_data: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        self._header_name = b""
        self._header_value = b""
        self._field: str | None = None
        self._value = b""
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part_begin,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers_finished,
                "on_part_data": self._on_part_data,
                "on_part_end": self._on_part_end,
                "on_end": self._on_end,
            },
        )

    async def file(self) -> AsyncIterator[bytes]:
        """The bytes of the part `file`.

        Raises:
            InvalidArgument: the body is malformed or cut off, has no file or two, or fields beyond the limits.
        """
        async for data in self._body:
            try:
                self._parser.write(data)
            except MultipartParseError as error:
                raise InvalidArgument("the multipart body is malformed", code="malformed_multipart") from error
            if self._file_data:
                yield b"".join(self._file_data)
                self._file_data.clear()
        if not self._complete:
            raise InvalidArgument("the multipart body is cut off", code="malformed_multipart")
        if not self._found_file:
            raise InvalidArgument("the form has no part named 'file'", code="file_missing")

    def _on_part_begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise InvalidArgument(f"the form has more than {MAX_PARTS} parts", code="malformed_multipart")
        self._headers = {}
        self._value = b""

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]
        if len(self._header_value) > MAX_FIELD_BYTES:
            raise InvalidArgument("a part's header is too long", code="malformed_multipart")

    def _on_header_end(self) -> None:
        self._headers[self._header_name.lower()] = self._header_value
        self._header_name = self._header_value = b""

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._field = options.get(b"name", b"").decode(errors="replace")
        if self._field != "file":
            return
        if self._found_file:
            raise InvalidArgument("one file a request", code="malformed_multipart")
        self._found_file = True
        self.filename = options.get(b"filename", b"").decode(errors="replace")

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._field == "file":
            self._file_data.append(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > MAX_FIELD_BYTES:
            raise InvalidArgument("a form field is too long", code="malformed_multipart")

    def _on_part_end(self) -> None:
        if self._field and self._field != "file":
            self.fields[self._field] = self._value.decode(errors="replace")

    def _on_end(self) -> None:
        self._complete = True
