"""What a ZIP-based document is, and whether it may be opened: the parsers have no such guards of their own."""

import re
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from kbmesh.errors import UnsupportedType
from services.ingest.domain.content_type import ContentType
from services.ingest.domain.extraction import ExtractionFailed

MAX_ENTRIES = 10_000
MAX_BYTES = 2**30
MAX_RATIO = 100
# Small files may repeat themselves as much as they like.
_RATIO_FROM_BYTES = 64 * 2**20
_MAX_DIRECTORY_BYTES = 16 * 2**20
_MAX_MARK_BYTES = 2**20
_END_RECORD = b"PK\x05\x06"
_END_RECORD_BYTES = 22
_MAX_COMMENT_BYTES = 2**16
_ENCRYPTED = 0x1

_XML_SUFFIXES = (".xml", ".rels", ".vml", ".xhtml", ".html", ".htm", ".opf", ".ncx", ".svg")
_ENTITY_MARKS = tuple("<!ENTITY".encode(encoding) for encoding in ("ascii", "utf-16-le", "utf-16-be"))
_BLOCK_BYTES = 2**20

_UNSAFE_NAME = re.compile(r"[/\\]|[A-Za-z]:|(?:.*[/\\])?\.\.(?:[/\\]|$)", re.DOTALL)
_OFFICE_TYPES = {
    b"wordprocessingml.document.main+xml": ContentType.DOCX,
    b"presentationml.presentation.main+xml": ContentType.PPTX,
    b"spreadsheetml.sheet.main+xml": ContentType.XLSX,
}
_OTHER_WORD_TYPES = (b"ms-word.document.macroEnabled", b"ms-word.template", b"wordprocessingml.template")
_OFFICE_FOLDERS = {"word/": ContentType.DOCX, "ppt/": ContentType.PPTX, "xl/": ContentType.XLSX}


def inspect(path: Path) -> ContentType:
    """The type of an archive by what is in it.

    Raises ExtractionFailed (archive_bomb, corrupt_file, password_required), UnsupportedType, and what zipfile
    raises for damage.
    """
    _check_directory(path)
    with ZipFile(path) as archive:
        entries = archive.infolist()
        _check_entries(entries, path.stat().st_size)
        content_type = _type(archive)
        for entry in entries:
            if entry.filename.lower().endswith(_XML_SUFFIXES) and _declares_entities(archive, entry):
                raise _bomb("it declares XML entities")
    return content_type


def _bomb(reason: str) -> ExtractionFailed:
    return ExtractionFailed(f"the archive is not safe to open: {reason}", code="archive_bomb")


def _check_directory(path: Path) -> None:
    """Before zipfile makes an object of each entry. Archives too large for these fields have them full of ones."""
    with path.open("rb") as file:
        file.seek(-min(path.stat().st_size, _MAX_COMMENT_BYTES + _END_RECORD_BYTES), 2)
        tail = file.read()
    end = tail.rfind(_END_RECORD)
    if end < 0:
        raise ExtractionFailed("the archive has no end: it was cut short")
    if int.from_bytes(tail[end + 10 : end + 12], "little") > MAX_ENTRIES:
        raise _bomb(f"it has more than {MAX_ENTRIES} entries")
    if int.from_bytes(tail[end + 12 : end + 16], "little") > _MAX_DIRECTORY_BYTES:
        raise _bomb("its directory is too large")


def _check_entries(entries: list[ZipInfo], archive_bytes: int) -> None:
    if len(entries) > MAX_ENTRIES:
        raise _bomb(f"it has more than {MAX_ENTRIES} entries")
    # zipfile reads no more of an entry than it declares here.
    total = sum(entry.file_size for entry in entries)
    if total > MAX_BYTES:
        raise _bomb(f"it unpacks to more than {MAX_BYTES >> 20} MiB")
    if total > _RATIO_FROM_BYTES and total > archive_bytes * MAX_RATIO:
        raise _bomb(f"it unpacks to more than {MAX_RATIO} times its size")
    if any(_UNSAFE_NAME.match(entry.filename) for entry in entries):
        raise ExtractionFailed("the archive has an entry that points outside of it")
    if len({entry.filename for entry in entries}) < len(entries):
        raise ExtractionFailed("the archive has two entries of one name")
    if any(entry.flag_bits & _ENCRYPTED for entry in entries):
        raise ExtractionFailed("the file needs a password", code="password_required")


def _type(archive: ZipFile) -> ContentType:
    names = archive.namelist()
    if "mimetype" in names:
        return _open_document_or_epub(archive)
    if "[Content_Types].xml" in names:
        declared = _start_of(archive, "[Content_Types].xml")
        for mark, content_type in _OFFICE_TYPES.items():
            if mark in declared:
                return content_type
        if any(mark in declared for mark in _OTHER_WORD_TYPES):
            raise UnsupportedType("a Word template, or a Word file with macros: save it as .docx")
    for folder, content_type in _OFFICE_FOLDERS.items():
        if any(name.startswith(folder) for name in names):
            return content_type
    raise UnsupportedType("an archive that is no Word, PowerPoint, Excel, OpenDocument text or EPUB file")


def _open_document_or_epub(archive: ZipFile) -> ContentType:
    declared = _start_of(archive, "mimetype").strip()
    if declared == ContentType.EPUB.encode():
        return ContentType.EPUB
    if declared != ContentType.ODT.encode():
        raise UnsupportedType("an OpenDocument file other than text (.odt)")
    if b":encryption-data" in _start_of(archive, "META-INF/manifest.xml"):
        raise ExtractionFailed("the file needs a password", code="password_required")
    return ContentType.ODT


def _start_of(archive: ZipFile, name: str) -> bytes:
    with archive.open(name) as file:
        return file.read(_MAX_MARK_BYTES)


def _declares_entities(archive: ZipFile, entry: ZipInfo) -> bool:
    before = b""
    with archive.open(entry) as file:
        while block := file.read(_BLOCK_BYTES):
            window = before + block
            if any(mark in window for mark in _ENTITY_MARKS):
                return True
            before = window[-max(map(len, _ENTITY_MARKS)) :]
    return False
