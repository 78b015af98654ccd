"""Builds the binary example documents from their sources: `python examples/build.py`.

The sources use a small part of Markdown: headings, paragraphs, tables, and `---` for a new page.
"""

import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import docx
from fpdf import FPDF
from fpdf.enums import XPos, YPos

HERE = Path(__file__).parent
WRITTEN = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Heading:
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    rows: list[list[str]]


@dataclass(frozen=True, slots=True)
class PageBreak:
    pass


Block = Heading | Paragraph | Table | PageBreak


def parse(source: str) -> Iterator[Block]:
    for part in source.strip().split("\n\n"):
        if part == "---":
            yield PageBreak()
        elif part.startswith("#"):
            marks, text = part.split(maxsplit=1)
            yield Heading(len(marks), text)
        elif part.startswith("|"):
            yield Table([[cell.strip() for cell in row.strip("|").split("|")] for row in part.splitlines()])
        else:
            yield Paragraph(" ".join(part.split()))


class Handbook(FPDF):
    def footer(self) -> None:
        self.set_y(-15)
        self.set_font("Helvetica", size=8)
        self.cell(0, 10, f"Data Platform Handbook, page {self.page_no()}", align="C")


def build_pdf(source: str) -> bytes:
    pdf = Handbook(format="A4")
    pdf.set_creation_date(WRITTEN)
    pdf.set_title("Larkmoor Energy: Data Platform Handbook")
    pdf.set_margin(22)
    pdf.set_auto_page_break(auto=True, margin=20)
    pdf.add_page()
    for block in parse(source):
        match block:
            case Heading(level, text):
                pdf.set_font("Helvetica", style="B", size=20 if level == 1 else 13)
                pdf.multi_cell(0, 9, text, new_x=XPos.LMARGIN, new_y=YPos.NEXT)
                pdf.ln(1)
            case Paragraph(text):
                pdf.set_font("Helvetica", size=10.5)
                pdf.multi_cell(0, 5.2, text, new_x=XPos.LMARGIN, new_y=YPos.NEXT)
                pdf.ln(3)
            case Table(rows):
                pdf.set_font("Helvetica", size=9)
                widths = [max(len(cell) for cell in column) + 4 for column in zip(*rows, strict=True)]
                with pdf.table(line_height=5, padding=1, col_widths=widths) as table:
                    for row in rows:
                        table.row(row)
                pdf.ln(4)
            case PageBreak():
                pdf.add_page()
    return bytes(pdf.output())


def build_docx(source: str) -> bytes:
    document = docx.Document()
    document.core_properties.title = "Larkmoor Energy: Data Governance Policy"
    document.core_properties.author = "Data Council"
    document.core_properties.created = document.core_properties.modified = WRITTEN
    for block in parse(source):
        match block:
            case Heading(level, text):
                document.add_heading(text, level=level)
            case Paragraph(text):
                document.add_paragraph(text)
            case Table(rows):
                table = document.add_table(rows=0, cols=len(rows[0]), style="Table Grid")
                for row in rows:
                    for cell, text in zip(table.add_row().cells, row, strict=True):
                        cell.text = text
    written = io.BytesIO()
    document.save(written)
    return with_fixed_times(written)


def with_fixed_times(archive: io.BytesIO) -> bytes:
    """The same zip archive with every member dated WRITTEN, so that a rebuild changes no byte."""
    fixed = io.BytesIO()
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(fixed, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.infolist():
            info = zipfile.ZipInfo(member.filename, WRITTEN.timetuple()[:6])
            new.writestr(info, old.read(member), zipfile.ZIP_DEFLATED)
    return fixed.getvalue()


def main() -> None:
    for name, build in (("handbook.pdf", build_pdf), ("governance_policy.docx", build_docx)):
        source = HERE / "source" / Path(name).with_suffix(".md")
        (HERE / name).write_bytes(build(source.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
