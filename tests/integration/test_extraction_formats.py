"""PDF, Word and text files, made here and read back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import docx
import pypdf
import pytest
from fpdf import FPDF
from unstructured.nlp import tokenize

from services.ingest.adapters.unstructured import extract
from services.ingest.domain.content_type import ContentType
from services.ingest.domain.extraction import ExtractedDocument, ExtractionFailed

SENTENCES = "The retention policy says how long rows are kept. Owners review it each quarter and sign the result. "


def outline(document: ExtractedDocument) -> list[tuple[str, int | None, str]]:
    return [(block.kind, block.level, document.text[block.start : block.end]) for block in document.blocks]


@pytest.fixture
def save(tmp_path: Path) -> Callable[[bytes | str], Path]:
    def write(content: bytes | str) -> Path:
        path = tmp_path / "file"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pdf = FPDF()

    def line(text: str, style: str = "") -> None:
        pdf.set_font("helvetica", style, 11)
        pdf.multi_cell(0, 6, text, new_x="LMARGIN", new_y="NEXT")
        pdf.ln(6)

    for page, title in enumerate(["Data Governance Policy", "2. Retention", "3. Access"], start=1):
        pdf.add_page()
        line(title, "B")
        line(SENTENCES * 4)
        line(f"{page}.1 Scope", "B")
        line(f"Page {page} ends here.")
        pdf.set_auto_page_break(False)
        pdf.set_y(-15)
        line(f"Confidential, page {page}")
        pdf.set_auto_page_break(True, 20)
    path = tmp_path_factory.mktemp("pdf") / "report.pdf"
    pdf.output(str(path))
    return path


def test_a_pdf_knows_its_pages_and_headings_and_loses_its_running_foot(report: Path) -> None:
    document = extract(report, ContentType.PDF)
    text = SENTENCES.strip()
    assert [block.page for block in document.blocks] == [1] * 4 + [2] * 4 + [3] * 4
    assert outline(document)[:8] == [
        ("heading", None, "Data Governance Policy"),
        ("text", None, " ".join([text] * 4)),
        ("heading", 2, "1.1 Scope"),
        ("text", None, "Page 1 ends here."),
        ("heading", 1, "2. Retention"),
        ("text", None, " ".join([text] * 4)),
        ("heading", 2, "2.1 Scope"),
        ("text", None, "Page 2 ends here."),
    ]


def test_a_pdf_without_text_is_an_empty_document(tmp_path: Path) -> None:
    pdf = FPDF()
    pdf.add_page()
    pdf.output(str(tmp_path / "blank.pdf"))
    assert extract(tmp_path / "blank.pdf", ContentType.PDF) == ExtractedDocument("", ())


def test_a_pdf_behind_a_password_says_so_and_one_that_only_forbids_changes_is_read(
    report: Path, tmp_path: Path
) -> None:
    for user_password in ("secret", ""):
        writer = pypdf.PdfWriter(clone_from=str(report))
        writer.encrypt(user_password, "owner", algorithm="AES-256")
        writer.write(str(tmp_path / f"encrypted{user_password}.pdf"))
        writer.close()
    with pytest.raises(ExtractionFailed) as caught:
        extract(tmp_path / "encryptedsecret.pdf", ContentType.PDF)
    assert caught.value.code == "password_required"
    assert "Retention" in extract(tmp_path / "encrypted.pdf", ContentType.PDF).text


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-40],
        lambda data: b"%PDF-1.7\n" + bytes(range(256)) * 8,
        lambda data: b"%PDF-1.7\n" + bytes(range(256)) * 8 + b"%%EOF\n",
        lambda data: b"",
    ],
    ids=["half", "no end mark", "noise", "noise with an end mark", "nothing"],
)
def test_a_broken_pdf_is_corrupt_and_not_empty(
    damage: Callable[[bytes], bytes], report: Path, save: Callable[[bytes], Path]
) -> None:
    with pytest.raises(ExtractionFailed) as caught:
        extract(save(damage(report.read_bytes())), ContentType.PDF)
    assert caught.value.code == "corrupt_file"


def test_trouble_that_the_library_swallows_is_not_an_empty_pdf(report: Path, tmp_path: Path) -> None:
    writer = pypdf.PdfWriter(clone_from=str(report))
    writer.pages[1][pypdf.generic.NameObject("/MediaBox")] = pypdf.generic.NullObject()
    writer.pages[1][pypdf.generic.NameObject("/Resources")] = pypdf.generic.NumberObject(7)
    writer.write(str(tmp_path / "odd.pdf"))
    writer.close()
    with pytest.raises(ExtractionFailed):
        extract(tmp_path / "odd.pdf", ContentType.PDF)


def test_a_word_file_keeps_headings_lists_and_tables(tmp_path: Path) -> None:
    document: Any = docx.Document()
    document.add_heading("Catalog", 0)
    document.add_heading("Orders", 1)
    document.add_paragraph("The orders table holds one row for each order.")
    table = document.add_table(2, 2)
    for row, values in enumerate([("Column", "Meaning"), ("id", "number of\nthe order")]):
        for cell, value in zip(table.rows[row].cells, values, strict=True):
            cell.text = value
    document.add_paragraph("one", style="List Bullet")
    document.add_paragraph("two", style="List Bullet")
    document.add_heading("Owner", 2)
    document.add_paragraph("Sales")
    document.save(str(tmp_path / "a.docx"))
    assert outline(extract(tmp_path / "a.docx", ContentType.DOCX)) == [
        ("heading", 1, "Catalog"),
        ("heading", 2, "Orders"),
        ("text", None, "The orders table holds one row for each order."),
        ("table", None, "Column | Meaning\nid | number of the order"),
        ("text", None, "- one\n- two"),
        ("heading", 3, "Owner"),
        ("text", None, "Sales"),
    ]


def test_markdown_keeps_levels_lists_tables_and_code(save: Callable[[str], Path]) -> None:
    source = (
        "# Dictionary\n\nOne *row* an order.\n\n## Columns\n\n- id\n- total\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 x |\n| 3 |  |\n\n```sql\nselect 1\n  from t\n```\n"
    )
    assert outline(extract(save(source), ContentType.MARKDOWN)) == [
        ("heading", 1, "Dictionary"),
        ("text", None, "One row an order."),
        ("heading", 2, "Columns"),
        ("text", None, "- id\n- total"),
        ("table", None, "a | b\n1 | 2 x\n3 |"),
        ("text", None, "select 1\n  from t"),
    ]


def test_a_markdown_list_needs_no_blank_line_before_it_and_little_indentation(save: Callable[[str], Path]) -> None:
    source = "The columns:\n- id\n  - a number\n- ~~sum~~ total\n"
    assert outline(extract(save(source), ContentType.MARKDOWN)) == [
        ("text", None, "The columns:"),
        ("text", None, "- id\n- a number\n- sum total"),
    ]


def test_html_is_read_in_its_encoding_without_scripts(save: Callable[[str], Path]) -> None:
    source = (
        '<?xml version="1.0" encoding="latin-1"?>\n<html><head><title>t</title><script>let x</script></head>'
        "<body><h1>Été <b>2026</b></h1><p>café — 数据</p>"
        "<table><tr><th>a</th><th>b</th></tr><tr><td><p>x</p><p>y</p></td><td>1<br>2</td></tr></table></body></html>"
    )
    assert outline(extract(save(source), ContentType.HTML)) == [
        ("heading", 1, "Été 2026"),
        ("text", None, "café — 数据"),
        ("table", None, "a | b\nx y | 1 2"),
    ]


def test_plain_text_loses_its_nuls_and_keeps_its_paragraphs(save: Callable[[bytes], Path]) -> None:
    source = (
        "SUMMARY\r\n\r\nA first line of a few words that\r\nwraps and goes on here. Größe\x00 zählt.\r\n\r\n"
        "- one\r\n- two\r\n"
    )
    assert outline(extract(save(source.encode("cp1252")), ContentType.TEXT)) == [
        ("heading", None, "SUMMARY"),
        ("text", None, "A first line of a few words that wraps and goes on here. Größe zählt."),
        ("text", None, "- one\n- two"),
    ]


@pytest.mark.parametrize("content_type", [ContentType.TEXT, ContentType.MARKDOWN, ContentType.HTML])
@pytest.mark.parametrize("source", ["", " \n\t\n", "\x00\x00"])
def test_a_file_of_nothing_is_an_empty_document(
    source: str, content_type: ContentType, save: Callable[[str], Path]
) -> None:
    assert extract(save(source), content_type).text == ""


def test_the_language_model_comes_from_the_installed_package_and_is_never_downloaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def download() -> None:
        raise AssertionError("unstructured is about to download a model")

    monkeypatch.setattr(tokenize, "_install_spacy_model", download)
    tokenize._get_nlp.cache_clear()
    assert tokenize.pos_tag("She reads books.") == [("She", "PRP"), ("reads", "VBZ"), ("books", "NNS"), (".", ".")]
