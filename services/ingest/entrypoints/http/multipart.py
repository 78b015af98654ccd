from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from kbmesh.errors import InvalidArgument, KbmeshError, TooLarge

# Above what any field may hold, so that its own check can say what is wrong with it.
MAX_FIELD_BYTES: Final = 32 * 1024
MAX_FIELDS: Final = 20
# As RFC 2046 has it; the parser has a limit too, and another error.
MAX_BOUNDARY_BYTES: Final = 70


@dataclass(frozen=True, slots=True)
class FormFile:
    """A part `file`. The body of the only one ends with the form, so that all fields are known by then."""

    filename: str
    body: AsyncIterator[bytes]


@dataclass(slots=True)
class _Part:
    """What has come of a file and nobody has taken yet: never more than a piece of the body holds."""

    filename: str
    data: list[bytes] = field(default_factory=list)
    complete: bool = False


class MultipartForm:
    """The files and some small fields out of a multipart/form-data body, without keeping the files.

    `fields` fills up as the files are read. With one file a field may stand before or behind it, with several all
    fields come before the first. `several` is known once a body has been read.
    """

    def __init__(
        self, content_type: str, body: AsyncIterator[bytes], *, max_files: int, max_skipped_bytes: int
    ) -> None:
        """
        Args:
            max_skipped_bytes: how much of a file that its reader gave up may still come.

        Raises:
            InvalidArgument: the content type names no boundary, or one that is too long.
        """
        _, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if not boundary or len(boundary) > MAX_BOUNDARY_BYTES:
            raise InvalidArgument(
                "multipart/form-data needs a boundary, of up to 70 bytes", code="malformed_multipart"
            )
        self.fields: dict[str, str] = {}
        self.several = False
        self._body = body
        self._max_files = max_files
        self._max_skipped_bytes = max_skipped_bytes
        self._files = 0
        self._other_parts = 0
        self._fields_behind = False
        self._waiting: deque[_Part] = deque()
        self._error: KbmeshError | None = None
        self._complete = False
        self._headers: dict[bytes, bytes] = {}
        self._header_name = b""
        self._header_value = b""
        self._file: _Part | None = None
        self._field = ""
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

    async def files(self) -> AsyncIterator[FormFile]:
        """One after the other; what is left of one when the next is asked for is skipped.

        Raises:
            InvalidArgument: there is none; or, from here or from the body of a file, the form is malformed or
                cut off, has too many files, or fields beyond the limits or behind several files.
            TooLarge: too much would have to be skipped.
        """
        while True:
            while not self._waiting:
                if not await self._read():
                    if not self._files:
                        raise InvalidArgument("the form has no part named 'file'", code="file_missing")
                    return
            part = self._waiting.popleft()
            yield FormFile(part.filename, self._rest(part))
            skipped = 0
            async for data in self._rest(part):
                skipped += len(data)
                if skipped > self._max_skipped_bytes:
                    raise TooLarge(f"more than {self._max_skipped_bytes} bytes of a refused file would follow")

    async def _rest(self, part: _Part) -> AsyncIterator[bytes]:
        while True:
            if part.data:
                data = b"".join(part.data)
                part.data.clear()
                yield data
            elif (part.complete and self.several) or not await self._read():
                return

    async def _read(self) -> bool:
        """Parses one more piece of the body; False: the form has come to its end.

        An error is raised by the call after the one that met it: what came before it is good.
        """
        if self._error is not None:
            raise self._error
        try:
            data = await anext(self._body, None)
            if data is not None:
                self._parser.write(data)
            elif self._complete:
                return False
            else:
                self._error = InvalidArgument("the multipart body is cut off", code="malformed_multipart")
        except MultipartParseError:
            self._error = InvalidArgument("the multipart body is malformed", code="malformed_multipart")
        except KbmeshError as error:
            self._error = error
        return True

    def _on_part_begin(self) -> None:
        self._headers = {}
        self._value = b""

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _on_header_end(self) -> None:
        self._headers[self._header_name.lower()] = self._header_value
        self._header_name = self._header_value = b""

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._field = options.get(b"name", b"").decode(errors="replace")
        self._file = None
        if self._field == "file":
            self._file = self._begin_file(options.get(b"filename", b"").decode(errors="replace"))
            self._waiting.append(self._file)
            return
        self._other_parts += 1
        if self._other_parts > MAX_FIELDS:
            raise InvalidArgument(f"the form has more than {MAX_FIELDS} fields", code="malformed_multipart")
        if self.several:
            raise _fields_behind_files()
        self._fields_behind = self._files > 0

    def _begin_file(self, filename: str) -> _Part:
        if self._files == self._max_files:
            raise InvalidArgument(f"a form has at most {self._max_files} files", code="too_many_files")
        if self._fields_behind:
            raise _fields_behind_files()
        self.several = self._files > 0
        self._files += 1
        return _Part(filename)

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._file is not None:
            self._file.data.append(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > MAX_FIELD_BYTES:
            raise InvalidArgument("a form field is too long", code="malformed_multipart")

    def _on_part_end(self) -> None:
        if self._file is not None:
            self._file.complete = True
        elif self._field:
            self.fields[self._field] = self._value.decode(errors="replace")

    def _on_end(self) -> None:
        self._complete = True


def _fields_behind_files() -> InvalidArgument:
    return InvalidArgument(
        "with several files, all other fields of the form come before the first file", code="fields_behind_files"
    )
