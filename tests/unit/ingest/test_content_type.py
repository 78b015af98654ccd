import pytest

from kbmesh.errors import UnsupportedType
from services.ingest.domain.content_type import ContentType, sniff_head
from tests.support.files import zipped

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x10\x00\x00\x00\x10\x08\x06\x00\x00\x00"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00>\x00\x01\x00\x00\x00"


@pytest.mark.parametrize(
    ("head", "filename", "expected"),
    [
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3", "report.pdf", ContentType.PDF),
        (b"\xef\xbb\xbf\n%PDF-1.4", "report.txt", ContentType.PDF),
        (zipped("[Content_Types].xml", "word/document.xml"), "anything.bin", ContentType.DOCX),
        (zipped("[Content_Types].xml", "_rels/.rels"), "Report.DOCX", ContentType.DOCX),
        (zipped("[Content_Types].xml", "xl/workbook.xml"), "renamed.docx", ContentType.XLSX),
        (zipped("[Content_Types].xml", "ppt/presentation.xml"), "slides", ContentType.PPTX),
        (zipped("[Content_Types].xml", "docProps/app.xml"), "book.xlsx", ContentType.XLSX),
        (zipped("[Content_Types].xml", "docProps/app.xml"), "book", ContentType.DOCX),
        (b"PK\x03\x04" + bytes(26) + b"mimetypeapplication/epub+zipPK\x03\x04", "a.docx", ContentType.EPUB),
        (
            b"PK\x03\x04" + bytes(26) + b"mimetypeapplication/vnd.oasis.opendocument.textPK\x03\x04",
            "letter",
            ContentType.ODT,
        ),
        (b"{\\rtf1\\ansi Hello}", "letter.doc", ContentType.RTF),
        (OLE + bytes(500), "old.txt", ContentType.DOC),
        (OLE + bytes(500), "old.XLS", ContentType.XLS),
        (b"Received: by x\r\n\tfor y\r\nFrom: a@x.org\r\n\r\nHi", "mail.txt", ContentType.EML),
        (b"Subject: minutes\nTo: b@x.org\n\nHi", "minutes.eml", ContentType.EML),
        (b"Subject: minutes\nFrom: the board\n\nHi", "minutes.txt", ContentType.TEXT),
        (b"a,b\n1,2\n", "rows.CSV", ContentType.CSV),
        (b"a\tb\n1\t2\n", "rows.tsv", ContentType.CSV),
        (b"a,b\n1,2\n", "rows.txt", ContentType.TEXT),
        (b"%PDF-1.7\n", "rows.csv", ContentType.PDF),
        ("これは方針です。".encode("cp932"), "a.txt", ContentType.TEXT),
        ("<html><meta charset=windows-1251><p>Срок хранения".encode("cp1251"), "a", ContentType.HTML),
        ("Rows are kept".encode("utf-16-le"), "a.txt", ContentType.TEXT),
        (b"<!DOCTYPE html><html></html>", "page.txt", ContentType.HTML),
        (b"\n<!-- saved -->\n<HTML lang=de>", "page", ContentType.HTML),
        (b'<?xml version="1.0"?>\n<html xmlns="x">', "page.xhtml", ContentType.HTML),
        (b"<p>A fragment</p>", "page.html", ContentType.HTML),
        (b"No tag at all, whatever the name says.", "page.html", ContentType.TEXT),
        (b"# Title\n\nText", "README.md", ContentType.MARKDOWN),
        (b'<p align="center">badge</p>\n\n# Title', "README.md", ContentType.MARKDOWN),
        (b"# Title\n\nText", "notes.txt", ContentType.TEXT),
        (b"plain text", "no-extension", ContentType.TEXT),
        (b"just text", "lies.pdf", ContentType.TEXT),
        ("Größe und Maß".encode(), "a.txt", ContentType.TEXT),
        ("Größe und Maß".encode("latin-1"), "a.txt", ContentType.TEXT),
        ("Größe und Maß".encode("utf-16"), "a.txt", ContentType.TEXT),
        ("数据".encode() * 4000, "a.txt", ContentType.TEXT),
        (b"a text with \x00 one NUL in it", "a.txt", ContentType.TEXT),
        (b"", "a.txt", ContentType.TEXT),
    ],
)
def test_content_decides_what_a_file_is(head: bytes, filename: str, expected: ContentType) -> None:
    assert sniff_head(head, filename) is expected


@pytest.mark.parametrize(
    ("head", "filename"),
    [
        (PNG, "picture.txt"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01", "photo.md"),
        (ELF, "program.txt"),
        (bytes(range(256)) * 32, "random.pdf"),
        (bytes(range(255, 0, -1)), "random.txt"),
        (b"\x00" * 100, "zeros.txt"),
        (zipped("mimetype", "content.xml", data=b"application/vnd.oasis.opendocument.spreadsheet"), "a.ods"),
        (zipped("mimetype", "content.xml", data=b"application/vnd.oasis.opendocument.spreadsheet"), "a.odt"),
        ("Срок хранения".encode("cp1251"), "undeclared.txt"),
        (zipped("a.txt", "b.txt"), "files.zip"),
        (b'<svg xmlns="http://www.w3.org/2000/svg"></svg>', "drawing.svg"),
    ],
)
def test_anything_else_is_refused_whatever_its_name(head: bytes, filename: str) -> None:
    with pytest.raises(UnsupportedType) as caught:
        sniff_head(head, filename)
    assert caught.value.code == "unsupported_type"


def test_a_head_that_ends_inside_a_character_is_still_utf8() -> None:
    assert sniff_head("é".encode() * 4096 + b"\xc3", "a.txt") is ContentType.TEXT
