"""What a file is, judged by its first bytes; the name decides only where bytes cannot."""

import codecs
import re
from enum import StrEnum
from pathlib import PurePath

from kbmesh.errors import UnsupportedType

HEAD_BYTES = 8192

_CP1252_UNDEFINED = b"\x81\x8d\x8f\x90\x9d"
_UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_CONTROLS = frozenset(range(0x20)) - frozenset(b"\t\n\v\f\r\x1b") | {0x7F}
_MAX_CONTROLS_UTF8 = 0.1
_MAX_HIGH_BYTES = 0.3

_HTML = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*|<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_TAG = re.compile(r"<[a-z][a-z0-9]*[\s/>]", re.IGNORECASE)
# Text on the surface, but meant for a program that draws it.
_NOT_PROSE = re.compile(r"\s*(?:\{\\rtf|%!PS|(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<svg\b)", re.DOTALL)


class ContentType(StrEnum):
    PDF = "application/pdf"
    DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    HTML = "text/html"
    MARKDOWN = "text/markdown"
    TEXT = "text/plain"


def sniff_head(head: bytes, filename: str) -> ContentType:
    """The type of a file from its first `HEAD_BYTES` bytes (fewer only if the file is shorter).

    A ZIP that may be a Word document passes as one; extraction looks inside. Raises UnsupportedType.
    """
    suffix = PurePath(filename).suffix.lower()
    if head.lstrip(codecs.BOM_UTF8 + b" \t\r\n").startswith(b"%PDF-"):
        return ContentType.PDF
    if head.startswith(b"PK\x03\x04"):
        return _sniff_zip(head, suffix)
    if head.startswith(_OLE):
        raise UnsupportedType("an old or password-protected Office file: save it as an unprotected .docx")
    if not _is_text(head):
        raise UnsupportedType("neither PDF, Word (.docx), HTML, Markdown nor plain text")
    return _sniff_text(decode_text(head), suffix)


def decode_text(data: bytes) -> str:
    """Text of a byte string: UTF-8, UTF-16 with a byte order mark, else Windows-1252. Never fails."""
    if data.startswith(_UTF16_BOMS):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        encoding = "latin-1" if any(byte in data for byte in _CP1252_UNDEFINED) else "cp1252"
        return data.decode(encoding)


def _sniff_zip(head: bytes, suffix: str) -> ContentType:
    names = [
        head[entry.start() + 30 :][: int.from_bytes(head[entry.start() + 26 : entry.start() + 28], "little")]
        for entry in re.finditer(rb"PK\x03\x04", head)
    ]
    if any(name.startswith(b"word/") for name in names):
        return ContentType.DOCX
    if suffix == ".docx" and not any(name.startswith((b"xl/", b"ppt/")) for name in names):
        return ContentType.DOCX
    raise UnsupportedType("an archive or Office file other than Word (.docx)")


def _sniff_text(text: str, suffix: str) -> ContentType:
    if _NOT_PROSE.match(text):
        raise UnsupportedType("a drawing or typesetting file: export it as PDF")
    if _HTML.match(text) or (suffix in {".html", ".htm", ".xhtml"} and _TAG.search(text)):
        return ContentType.HTML
    return ContentType.MARKDOWN if suffix in {".md", ".markdown"} else ContentType.TEXT


def _is_text(head: bytes) -> bool:
    """True unless the bytes look like anything but text; NULs strewn into a text are forgiven."""
    if head.startswith(_UTF16_BOMS):
        text = head[: len(head) // 2 * 2].decode("utf-16", "replace")
        return sum((char < " " and not char.isspace()) or char == "\ufffd" for char in text) <= len(text) / 100
    controls = sum(byte in _CONTROLS for byte in head)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        high = sum(byte >= 0x80 for byte in head)
        return controls == 0 and high <= len(head) * _MAX_HIGH_BYTES
    return controls <= len(head) * _MAX_CONTROLS_UTF8
