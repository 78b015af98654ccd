"""Generated files: all visible words come out in order, and damage ends in text or a stated code."""

import csv
import html
import io
import zipfile
from email.message import EmailMessage
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import docx
import openpyxl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbmesh.errors import UnsupportedType
from services.ingest.adapters.unstructured import extract
from services.ingest.domain.content_type import HEAD_BYTES, ContentType, sniff_head
from services.ingest.domain.extraction import ExtractedDocument, ExtractionFailed
from tests.data.make import FOLDER

few = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
fewer = settings(few, max_examples=6)

Block = tuple[str, list[list[str]]]

# Letters alone: what the formats and the readers take for marks of structure is not what is tested here.
letters = st.characters(categories=["Lu", "Ll", "Lo"], max_codepoint=0xFFFF)
words = st.sampled_from(["rows", "Größe", "数据", "שלום", "x1"]) | st.text(letters, min_size=2, max_size=9)
lines = st.lists(words, min_size=1, max_size=8).map(" ".join)
unicode_encodings = st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])


def grids(columns: st.SearchStrategy[int], max_rows: int) -> st.SearchStrategy[list[list[str]]]:
    return columns.flatmap(
        lambda width: st.lists(st.lists(lines, min_size=width, max_size=width), min_size=1, max_size=max_rows)
    )


tables = grids(st.integers(2, 4), 4)
blocks = st.one_of(
    st.tuples(st.sampled_from(["h1", "h2", "p"]), grids(st.just(1), 1)),
    st.tuples(st.just("ul"), grids(st.just(1), 3)),
    st.tuples(st.just("table"), tables),
)
documents = st.lists(blocks, min_size=1, max_size=5)


def encoded_words(but: str = "none") -> st.SearchStrategy[tuple[str, list[str]]]:
    """An encoding and lines that it can hold and that it is recognized by."""
    western = ["rows", "are", "kept", "for", "years", "Größe", "zählt", "für", "naïve"]
    japanese = ["これは", "保存期間の方針です", "行は七年間保存される"]
    alphabets = {
        **dict.fromkeys(["utf-8", "utf-8-sig", "utf-16"], words),
        **dict.fromkeys(["utf-16-le", "utf-16-be", "cp1252", "latin-1"], st.sampled_from(western)),
        "cp932": st.sampled_from(japanese),
    }

    def of(encoding: str) -> st.SearchStrategy[tuple[str, list[str]]]:
        line = st.lists(alphabets[encoding], min_size=2, max_size=8).map(" ".join)
        return st.tuples(st.just(encoding), st.lists(line, min_size=1, max_size=6))

    return st.sampled_from([name for name in sorted(alphabets) if not name.startswith(but)]).flatmap(of)


def read(content: bytes, content_type: ContentType) -> ExtractedDocument:
    with TemporaryDirectory() as folder:
        path = Path(folder, "original")
        path.write_bytes(content)
        return extract(path, content_type)


def check(content: bytes, name: str, written: list[str]) -> None:
    """As the service reads it, the head decides with the name, then the content."""
    document = read(content, sniff_head(content[:HEAD_BYTES], name))
    position = 0
    for word in " ".join(written).split():
        position = document.text.index(word, position) + len(word)
    check_spans(document)


def check_spans(document: ExtractedDocument) -> None:
    texts = [document.text[block.start : block.end] for block in document.blocks]
    assert document.text == "\n\n".join(texts)
    assert all(text == text.strip() != "" for text in texts)


def words_of(document: list[Block]) -> list[str]:
    return [cell for _, rows in document for row in rows for cell in row]


@few
@given(encoded_words(), st.sampled_from(["\n", "\r\n", "\r", "\n\n"]))
def test_every_word_of_a_text_is_read_in_every_encoding(written: tuple[str, list[str]], line_end: str) -> None:
    encoding, text = written
    check(line_end.join(text).encode(encoding), "a.txt", text)


@few
@given(documents, unicode_encodings)
def test_every_word_of_a_page_is_read(document: list[Block], encoding: str) -> None:
    def element(tag: str, rows: list[list[str]]) -> str:
        escaped = [[html.escape(cell) for cell in row] for row in rows]
        if tag == "ul":
            return "<ul>" + "".join(f"<li>{row[0]}</li>" for row in escaped) + "</ul>"
        if tag == "table":
            cells = ("".join(f"<td>{cell}</td>" for cell in row) for row in escaped)
            return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"
        return f"<{tag}>{escaped[0][0]}</{tag}>"

    page = "<html><body>" + "\n".join(element(*block) for block in document) + "</body></html>"
    check(page.encode(encoding), "a.html", words_of(document))


@few
@given(documents, unicode_encodings, st.sampled_from(["\n", "\r\n"]))
def test_every_word_of_a_markdown_file_is_read(document: list[Block], encoding: str, line_end: str) -> None:
    def block(tag: str, rows: list[list[str]]) -> str:
        if tag == "ul":
            return "\n".join(f"* {row[0]}" for row in rows)
        if tag == "table":
            head, *body = [f"| {' | '.join(row)} |" for row in rows]
            return "\n".join([head, "|" + "---|" * len(rows[0]), *body])
        return {"h1": "# ", "h2": "## ", "p": ""}[tag] + rows[0][0]

    text = "\n\n".join(block(*each) for each in document)
    check(text.replace("\n", line_end).encode(encoding), "a.md", words_of(document))


@few
@given(documents)
def test_every_word_of_a_word_file_is_read(document: list[Block]) -> None:
    file: Any = docx.Document()
    for tag, rows in document:
        if tag == "table":
            table = file.add_table(len(rows), len(rows[0]))
            for row, cells in zip(rows, table.rows, strict=True):
                for text, cell in zip(row, cells.cells, strict=True):
                    cell.text = text
        else:
            style = {"h1": "Heading 1", "h2": "Heading 2", "p": "Normal", "ul": "List Bullet"}[tag]
            for row in rows:
                file.add_paragraph(row[0], style=style)
    buffer = io.BytesIO()
    file.save(buffer)
    check(buffer.getvalue(), "a.docx", words_of(document))


@few
@given(tables, unicode_encodings, st.sampled_from(",;\t|"))
def test_every_cell_of_comma_separated_values_is_read(
    rows: list[list[str]], encoding: str, delimiter: str
) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter).writerows(rows)
    document = read(buffer.getvalue().encode(encoding), ContentType.CSV)
    assert document.text == "\n".join(" | ".join(row) for row in rows)
    check_spans(document)


@few
@given(tables)
def test_every_cell_of_a_workbook_is_read(rows: list[list[str]]) -> None:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    buffer = io.BytesIO()
    book.save(buffer)
    check(buffer.getvalue(), "a.xlsx", [" ".join(row) for row in rows])


@few
@given(encoded_words(but="utf-16"), st.sampled_from(["base64", "quoted-printable"]), st.booleans())
def test_every_word_of_a_mail_is_read(written: tuple[str, list[str]], transfer: str, attached: bool) -> None:
    encoding, text = written
    mail = EmailMessage()
    mail["From"], mail["Subject"], mail["Message-ID"] = "a@example.org", "Betreff: Größe", "<1@example.org>"
    mail.set_content("\n".join(text), charset=encoding, cte=transfer)
    if attached:
        mail.add_attachment(b"\0", maintype="application", subtype="pdf", filename="size.pdf")
    check(bytes(mail), "a.eml", ["Größe", *(["size.pdf"] if attached else []), *text])


damage = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=3)), min_size=1, max_size=8)


def damaged(content: bytes, changes: list[tuple[float, bytes]]) -> bytes:
    for place, data in changes:
        start = int(place * len(content))
        content = content[:start] + data + content[start + 2 :]
    return content


def check_end(content: bytes, content_type: ContentType) -> None:
    try:
        document = read(content, content_type)
    except (ExtractionFailed, UnsupportedType) as error:
        assert error.code in {"corrupt_file", "password_required", "archive_bomb", "unsupported_type"}  # noqa: PT017
    else:
        check_spans(document)


@pytest.mark.parametrize("name", ["plain.pdf", "plain.docx", "plain.xlsx"])
@few
@given(damage)
def test_a_damaged_file_ends_in_text_or_a_stated_code(name: str, changes: list[tuple[float, bytes]]) -> None:
    content = damaged((FOLDER / name).read_bytes(), changes)
    check_end(content, ContentType.PDF if name.endswith("pdf") else ContentType.DOCX)


@pytest.mark.parametrize("name", ["plain.odt", "plain.epub", "plain.rtf"])
@fewer
@given(damage)
def test_what_pandoc_reads_ends_in_text_or_a_stated_code(name: str, changes: list[tuple[float, bytes]]) -> None:
    content = damaged((FOLDER / name).read_bytes(), changes)
    check_end(content, ContentType.RTF if name.endswith("rtf") else ContentType.DOCX)


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("plain.docx", "word/document.xml"),
        ("plain.docx", "[Content_Types].xml"),
        ("plain.xlsx", "xl/worksheets/sheet1.xml"),
        ("plain.odt", "content.xml"),
        ("plain.epub", "a.xhtml"),
    ],
)
@fewer
@given(damage)
def test_damage_inside_an_archive_ends_in_text_or_a_stated_code(
    name: str, entry: str, changes: list[tuple[float, bytes]]
) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(FOLDER / name) as old, zipfile.ZipFile(buffer, "w") as new:
        for each in old.namelist():
            new.writestr(each, damaged(old.read(each), changes) if each == entry else old.read(each))
    check_end(buffer.getvalue(), ContentType.DOCX)
