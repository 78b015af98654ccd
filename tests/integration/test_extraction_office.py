"""Slides, spreadsheets, OpenDocument, e-books, rich text and mail, made here and read back."""

from collections.abc import Callable
from datetime import datetime, time
from email.message import EmailMessage
from pathlib import Path
from zipfile import ZipFile

import pytest

from services.ingest.adapters.unstructured import extract
from services.ingest.domain.content_type import ContentType, sniff_head
from services.ingest.domain.extraction import ExtractedDocument
from tests.support.files import by_pandoc, repacked, slides, word, workbook

DICTIONARY = [
    ("heading", 1, "Dictionary"),
    ("text", None, "One row an order."),
    ("heading", 2, "Columns"),
    ("table", None, "Column | Meaning\nid | number of the order"),
    ("text", None, "- one\n- two"),
]


def outline(document: ExtractedDocument) -> list[tuple[str, int | None, str]]:
    return [(block.kind, block.level, document.text[block.start : block.end]) for block in document.blocks]


def read(path: Path, name: str = "no-extension") -> ExtractedDocument:
    """As the service does: the head decides with the name, then the content."""
    return extract(path, sniff_head(path.read_bytes()[:8192], name))


@pytest.fixture
def save(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(content: bytes) -> Path:
        path = tmp_path / "file"
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize("name", ["no-extension", "lies.docx", "lies.csv"])
@pytest.mark.parametrize("target_format", ["odt", "rtf"])
def test_open_document_and_rich_text_keep_headings_tables_and_lists(
    target_format: str, name: str, tmp_path: Path
) -> None:
    assert outline(read(by_pandoc(tmp_path / f"a.{target_format}", target_format), name)) == DICTIONARY


def test_a_book_keeps_its_title_too(tmp_path: Path) -> None:
    path = by_pandoc(tmp_path / "a.epub", "epub3", "The Book")
    assert outline(read(path)) == [("heading", 1, "The Book"), *DICTIONARY]


def test_slides_are_pages_under_their_titles_with_notes_and_tables(tmp_path: Path) -> None:
    document = read(slides(tmp_path / "a.pptx"))
    assert outline(document) == [
        ("heading", 1, "Retention"),
        ("text", None, "Say why it is seven."),
        ("text", None, "Rows are kept for seven years."),
        ("heading", 1, "Owners"),
        ("table", None, "Table | Owner\norders | Sales North"),
    ]
    assert [block.page for block in document.blocks] == [1, 1, 1, 2, 2]


def test_a_workbook_is_its_visible_sheets_under_their_names(tmp_path: Path) -> None:
    sheets: dict[str, list[list[object]]] = {
        "Orders": [
            ["id", "day", "at", "total"],
            [1, datetime(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5), 0.1 + 0.2],
            [2, None, time(9, 30), 1500.0],
            [],
            ["a note\nof two lines", True],
        ],
        "Secret": [["salary"]],
        "Empty": [],
    }
    assert outline(read(workbook(tmp_path / "a.xlsx", sheets, hidden="Secret"))) == [
        ("heading", 1, "Orders"),
        (
            "table",
            None,
            "id | day | at | total\n1 | 2026-01-02 | 2026-01-02 03:04:05 | 0.3\n2 |  | 09:30:00 | 1500",
        ),
        ("table", None, "a note of two lines | True"),
    ]


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (b'<dimension ref="A1:A1"', b'<dimension ref="A1:XFD1048576"'),
        (b'r="A1"', b'r="XFD1"'),
        (b'<row r="1"', b'<row r="1048576"'),
    ],
)
def test_a_workbook_that_claims_to_be_huge_costs_what_it_holds(here: bytes, there: bytes, tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", {"Sheet": [["far"]]})
    name = "xl/worksheets/sheet1.xml"
    sheet = ZipFile(path).read(name)
    assert here in sheet
    path = repacked(path, tmp_path / "b.xlsx", {name: sheet.replace(here, there)})
    assert outline(read(path))[1][2].strip(" |") == "far"


@pytest.mark.parametrize(
    ("source", "table"),
    [
        ("a,b\n1,2\n", "a | b\n1 | 2"),
        ('a;b\r\n"x;y";1,5\r\n\r\nz;"two\nlines"\r\n', "a | b\nx;y | 1,5\nz | two lines"),
        ("a\tb\rc, d\t2\r", "a | b\nc, d | 2"),
        ('say "hi",2\n"never closed,3\n', 'say "hi" | 2\nnever closed,3'),
        ("one\ntwo\n", "one\ntwo"),
        ("Größe,Preis\n5,3 €\n", "Größe | Preis\n5 | 3 €"),
        ("x" * 200_000 + ",b\n", "x" * 200_000 + " | b"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_comma_separated_values_become_a_table(
    source: str, table: str, encoding: str, save: Callable[[bytes], Path]
) -> None:
    assert outline(read(save(source.encode(encoding)), "a.csv")) == [("table", None, table)]


@pytest.mark.parametrize("name", ["empty.csv", "empty.txt"])
@pytest.mark.parametrize("content", [b"", b"\r\n\r\n", b",,\n,,\n"])
def test_a_table_of_nothing_is_empty(name: str, content: bytes, save: Callable[[bytes], Path]) -> None:
    assert read(save(content), name).text.strip(",\n") == ""


@pytest.mark.parametrize("charset", ["utf-8", "iso-8859-1"])
def test_a_mail_is_its_headers_and_its_best_body_and_names_its_attachments(
    charset: str, save: Callable[[bytes], Path]
) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "Ann <ann@example.org>", "bob@example.org", "Größe der Tabelle"
    mail["Message-ID"] = "<1@example.org>"
    mail.set_content("The table of orders grows.\n\nBest,\nAnn\n", charset=charset, cte="8bit")
    mail.add_attachment(b"%PDF-", maintype="application", subtype="pdf", filename="size.pdf")
    head = [
        ("heading", 1, "Größe der Tabelle"),
        ("text", None, "From: Ann <ann@example.org>\nTo: bob@example.org\nAttachments: size.pdf"),
    ]
    assert outline(read(save(bytes(mail)))) == [
        *head,
        ("text", None, "The table of orders grows."),
        ("text", None, "Best,"),
        ("text", None, "Ann"),
    ]
    mail.get_body().add_alternative("<p>Größe: <b>siebzig</b></p>", subtype="html", charset=charset)  # type: ignore[union-attr]
    assert outline(read(save(bytes(mail)))) == [*head, ("text", None, "Größe: siebzig")]


def test_the_name_does_not_make_an_archive_what_it_is_not(tmp_path: Path) -> None:
    path = slides(tmp_path / "a.pptx")
    assert extract(path, ContentType.DOCX).text.startswith("Retention")
    assert extract(word(tmp_path / "b.docx"), ContentType.XLSX).text == "Rows are kept."
    assert read(workbook(tmp_path / "c.xlsx", {"S": [["x"]]}), "c.pdf").text == "S\n\nx"


def test_a_page_in_a_declared_charset_is_read_in_it(save: Callable[[bytes], Path]) -> None:
    page = '<html><meta charset="Shift_JIS"><body><h1>保存期間</h1><p>顧客台帳七年保存。</p></body></html>'
    assert outline(read(save(page.encode("cp932")))) == [
        ("heading", 1, "保存期間"),
        ("text", None, "顧客台帳七年保存。"),
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1", "cp1252"])
def test_plain_text_reads_alike_in_every_encoding_and_with_mixed_line_ends(
    encoding: str, save: Callable[[bytes], Path]
) -> None:
    source = "SUMMARY\r\n\r\nThe size (Größe) of each table is\rchecked.\n\nOwners sign the result."
    assert outline(read(save(source.encode(encoding)))) == [
        ("heading", None, "SUMMARY"),
        ("text", None, "The size (Größe) of each table is checked."),
        ("text", None, "Owners sign the result."),
    ]


def test_plain_text_in_shift_jis_is_read(save: Callable[[bytes], Path]) -> None:
    assert read(save("これは保存期間の方針です。".encode("cp932"))).text == "これは保存期間の方針です。"
