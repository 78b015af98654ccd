"""What a file is, judged by its first bytes; the name decides only where bytes cannot."""

import codecs
import re
from enum import StrEnum
from pathlib import PurePath

from kbmesh.errors import UnsupportedType
from services.ingest.domain.encoding import declared_charset, decode_text, encoding_of

HEAD_BYTES = 8192

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_CONTROLS = frozenset(range(0x20)) - frozenset(b"\t\n\v\f\r\x1b") | {0x7F}
_MAX_CONTROLS_UTF8 = 0.1
_MAX_HIGH_BYTES = 0.3

_HTML = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*|<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_TAG = re.compile(r"<[a-z][a-z0-9]*[\s/>]", re.IGNORECASE)
# Text on the surface, but meant for a program that draws it.
_NOT_PROSE = re.compile(r"\s*(?:%!PS|(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<svg\b)", re.DOTALL)


class ContentType(StrEnum):
    PDF = "application/pdf"
    DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
    XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    ODT = "application/vnd.oasis.opendocument.text"
    EPUB = "application/epub+zip"
    DOC = "application/msword"
    PPT = "application/vnd.ms-powerpoint"
    XLS = "application/vnd.ms-excel"
    RTF = "application/rtf"
    EML = "message/rfc822"
    CSV = "text/csv"
    HTML = "text/html"
    MARKDOWN = "text/markdown"
    TEXT = "text/plain"


ARCHIVES = frozenset({ContentType.DOCX, ContentType.PPTX, ContentType.XLSX, ContentType.ODT, ContentType.EPUB})
OLD_OFFICE = frozenset({ContentType.DOC, ContentType.PPT, ContentType.XLS})
_OFFICE_FOLDERS = {b"word/": ContentType.DOCX, b"ppt/": ContentType.PPTX, b"xl/": ContentType.XLSX}
_ARCHIVE_SUFFIXES = {f".{content_type.name.lower()}": content_type for content_type in ARCHIVES}
_OLD_SUFFIXES = {f".{content_type.name.lower()}": content_type for content_type in OLD_OFFICE}
_TEXT_SUFFIXES = {
    ".md": ContentType.MARKDOWN,
    ".markdown": ContentType.MARKDOWN,
    ".csv": ContentType.CSV,
    ".tsv": ContentType.CSV,
}
_MAIL_HEADERS = re.compile(r"(?:[!-9;-~]+:.*\n(?:[ \t].*\n)*)+")
_HEADER_NAME = re.compile(r"^([!-9;-~]+):", re.MULTILINE)
_TRACES_OF_MAIL = frozenset({"message-id", "mime-version", "received"})


def sniff_head(head: bytes, filename: str) -> ContentType:
    """The type of a file from its first `HEAD_BYTES` bytes (fewer only if the file is shorter).

    An archive is judged by the names at its beginning, or passes by its own name, as old Office files do:
    extraction looks inside.
    Raises UnsupportedType.
    """
    suffix = PurePath(filename).suffix.lower()
    if head.lstrip(codecs.BOM_UTF8 + b" \t\r\n").startswith(b"%PDF-"):
        return ContentType.PDF
    if head.startswith(b"PK\x03\x04"):
        return _sniff_zip(head, suffix)
    if head.startswith(_OLE):
        return _OLD_SUFFIXES.get(suffix, ContentType.DOC)
    if not _is_text(head):
        raise UnsupportedType("neither a document of a supported type nor plain text")
    return _sniff_text(decode_text(head), suffix)


def _sniff_zip(head: bytes, suffix: str) -> ContentType:
    names = [
        head[entry.start() + 30 :][: int.from_bytes(head[entry.start() + 26 : entry.start() + 28], "little")]
        for entry in re.finditer(rb"PK\x03\x04", head)
    ]
    for content_type in (ContentType.ODT, ContentType.EPUB):
        # Followed by the next entry: types that only begin alike are others.
        if b"mimetype" + content_type.encode() + b"PK" in head:
            return content_type
    for folder, content_type in _OFFICE_FOLDERS.items():
        if any(name.startswith(folder) for name in names):
            return content_type
    if suffix in _ARCHIVE_SUFFIXES and b"mimetype" not in names:
        return _ARCHIVE_SUFFIXES[suffix]
    if b"[Content_Types].xml" in names:
        return ContentType.DOCX
    raise UnsupportedType("an archive that is no Word, PowerPoint, Excel, OpenDocument text or EPUB file")


def _sniff_text(text: str, suffix: str) -> ContentType:
    if _NOT_PROSE.match(text):
        raise UnsupportedType("a drawing or typesetting file: export it as PDF")
    if text.startswith("{\\rtf"):
        return ContentType.RTF
    if _HTML.match(text) or (suffix in {".html", ".htm", ".xhtml"} and _TAG.search(text)):
        return ContentType.HTML
    if _is_mail(text.replace("\r\n", "\n"), suffix):
        return ContentType.EML
    return _TEXT_SUFFIXES.get(suffix, ContentType.TEXT)


def _is_mail(text: str, suffix: str) -> bool:
    if (headers := _MAIL_HEADERS.match(text)) is None:
        return False
    names = {name.lower() for name in _HEADER_NAME.findall(headers.group())}
    if suffix == ".eml":
        return bool(names & {"from", "to", "subject", "date", *_TRACES_OF_MAIL})
    return "from" in names and bool(names & _TRACES_OF_MAIL)


def _is_text(head: bytes) -> bool:
    """True unless the bytes look like anything but text; NULs strewn into a text are forgiven."""
    encoding = encoding_of(head)
    if encoding.startswith("utf-16"):
        text = head[: len(head) // 2 * 2].decode(encoding, "replace")
        return sum((char < " " and not char.isspace()) or char == "\ufffd" for char in text) <= len(text) / 100
    controls = sum(byte in _CONTROLS for byte in head)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        high = sum(byte >= 0x80 for byte in head)
        foreign = encoding == "cp932" or declared_charset(head) is not None
        return controls == 0 and (foreign or high <= len(head) * _MAX_HIGH_BYTES)
    return controls <= len(head) * _MAX_CONTROLS_UTF8
