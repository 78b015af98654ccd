"""Files of each format as their programs write them, of any number of pages."""

import csv
import io
import subprocess
from collections.abc import Callable, Sequence
from email.message import EmailMessage
from html import escape
from pathlib import Path
from typing import Any, Final

from deploy.embedded.benchmarks.prose import Page, make_pages, make_rows
from services.ingest.domain.content_type import OLD_OFFICE, ContentType

SEED: Final = 1
SHEET_ROWS: Final = 40  # a page of a sheet or a CSV file
SHEET_COLUMNS: Final = 8
CONVERSION_TIMEOUT_S: Final = 300
PREDECESSORS: Final = {
    ContentType.DOC: ContentType.DOCX,
    ContentType.XLS: ContentType.XLSX,
    ContentType.PPT: ContentType.PPTX,
}


def make_file(folder: Path, content_type: ContentType, pages: int) -> Path:
    """A file of about 400 words a page; of tables 40 rows of 8 cells, of slides a title and five points.

    Old Office files need LibreOffice.
    """
    path = folder / f"{pages}.{content_type.name.lower()}"
    if content_type in OLD_OFFICE:
        return _saved_as_old(make_file(folder, PREDECESSORS[content_type], pages), path)
    _WRITERS[content_type](path, pages)
    return path


def _write_pdf(path: Path, count: int) -> None:
    from fpdf import FPDF
    from fpdf.enums import XPos, YPos

    pdf = FPDF()
    for page in make_pages(count, SEED):
        pdf.add_page()
        pdf.set_font("Helvetica", "B", size=14)
        pdf.multi_cell(0, 9, page.heading, new_x=XPos.LMARGIN, new_y=YPos.NEXT)
        pdf.set_font("Helvetica", size=9)
        for paragraph in page.paragraphs:
            pdf.multi_cell(0, 4.5, paragraph, new_x=XPos.LMARGIN, new_y=YPos.NEXT)
            pdf.ln(3)
        for row in page.table:
            for cell in row:
                pdf.cell(45, 5, cell)
            pdf.ln()
    pdf.output(str(path))


def _write_docx(path: Path, count: int) -> None:
    import docx

    document: Any = docx.Document()
    for page in make_pages(count, SEED):
        document.add_heading(page.heading, level=1)
        for paragraph in page.paragraphs:
            document.add_paragraph(paragraph)
        if page.table:
            table = document.add_table(rows=len(page.table), cols=len(page.table[0]))
            # All cells at once: asked one by one, the library counts them all each time.
            for cell, text in zip(table._cells, (text for row in page.table for text in row), strict=True):
                cell.text = text
    document.save(str(path))


def _write_pptx(path: Path, count: int) -> None:
    import pptx

    deck: Any = pptx.Presentation()
    for page in make_pages(count, SEED):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = page.heading
        slide.placeholders[1].text = "\n".join(paragraph.split(". ")[0] for paragraph in page.paragraphs)
        slide.notes_slide.notes_text_frame.text = page.paragraphs[0]
    deck.save(str(path))


def _write_xlsx(path: Path, count: int) -> None:
    import openpyxl

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Figures")
    for row in make_rows(count * SHEET_ROWS, SHEET_COLUMNS, SEED):
        sheet.append([int(cell) if cell.isdigit() else cell for cell in row])
    book.save(path)


def _write_csv(path: Path, count: int) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(make_rows(count * SHEET_ROWS, SHEET_COLUMNS, SEED))


def _write_html(path: Path, count: int) -> None:
    path.write_text(_html(make_pages(count, SEED)), encoding="utf-8")


def _write_markdown(path: Path, count: int) -> None:
    text = io.StringIO()
    for page in make_pages(count, SEED):
        text.write(f"# {page.heading}\n\n" + "".join(f"{paragraph}\n\n" for paragraph in page.paragraphs))
        if page.table:
            titles, *rows = page.table
            lines = [titles, ["---"] * len(titles), *rows]
            text.write("".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n")
    path.write_text(text.getvalue(), encoding="utf-8")


def _write_text(path: Path, count: int) -> None:
    path.write_text(_plain(make_pages(count, SEED)), encoding="utf-8")


def _write_mail(path: Path, count: int) -> None:
    message = EmailMessage()
    message["From"], message["To"] = "ines@example.com", "all@example.com"
    message["Subject"], message["Date"] = "The handbook", "Thu, 01 Jan 2026 12:00:00 +0000"
    pages = make_pages(count, SEED)
    message.set_content(_plain(pages))
    message.add_alternative(_html(pages), subtype="html")
    path.write_bytes(message.as_bytes())


def _by_pandoc(path: Path, count: int) -> None:
    import pypandoc

    options = ["--standalone", "--metadata=title:Handbook"]
    pages = _html(make_pages(count, SEED))
    pypandoc.convert_text(pages, path.suffix[1:], "html", outputfile=str(path), extra_args=options)


def _html(pages: Sequence[Page]) -> str:
    body = "".join(
        f"<h1>{escape(page.heading)}</h1>"
        + "".join(f"<p>{escape(paragraph)}</p>\n" for paragraph in page.paragraphs)
        + ("<table>" + "".join(_html_row(row) for row in page.table) + "</table>\n" if page.table else "")
        for page in pages
    )
    return f"<!DOCTYPE html><html><head><title>Handbook</title></head><body>{body}</body></html>"


def _html_row(row: list[str]) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"


def _plain(pages: Sequence[Page]) -> str:
    return "\n\n".join(
        "\n\n".join([page.heading, *page.paragraphs, "\n".join("  ".join(row) for row in page.table)])
        for page in pages
    )


def _saved_as_old(source: Path, path: Path) -> Path:
    profile = f"-env:UserInstallation={(path.parent / 'profile').as_uri()}"
    subprocess.run(
        ["soffice", "--headless", profile, "--convert-to", path.suffix[1:], "--outdir", path.parent, source],
        check=True,
        capture_output=True,
        timeout=CONVERSION_TIMEOUT_S,
    )
    if not path.exists():
        raise RuntimeError(f"LibreOffice wrote no {path.suffix[1:]} file")
    return path


_WRITERS: Final[dict[ContentType, Callable[[Path, int], None]]] = {
    ContentType.PDF: _write_pdf,
    ContentType.DOCX: _write_docx,
    ContentType.ODT: _by_pandoc,
    ContentType.PPTX: _write_pptx,
    ContentType.XLSX: _write_xlsx,
    ContentType.CSV: _write_csv,
    ContentType.HTML: _write_html,
    ContentType.MARKDOWN: _write_markdown,
    ContentType.TEXT: _write_text,
    ContentType.RTF: _by_pandoc,
    ContentType.EPUB: _by_pandoc,
    ContentType.EML: _write_mail,
}
