"""Small files of the formats that need a library to write, and nasty ones."""

import io
import shutil
import struct
import zipfile
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx
import pypandoc
import pytest
from PIL import Image, ImageDraw, ImageFont

needs_tesseract = pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")

HTML = """<h1>Dictionary</h1><p>One row an order.</p><h2>Columns</h2>
<table><tr><th>Column</th><th>Meaning</th></tr><tr><td>id</td><td>number of the order</td></tr></table>
<ul><li>one</li><li>two</li></ul>"""


def by_pandoc(path: Path, target_format: str, title: str = "") -> Path:
    options = ["--standalone", f"--metadata=title:{title}"]
    pypandoc.convert_text(HTML, target_format, "html", outputfile=str(path), extra_args=options)
    return path


def slides(path: Path) -> Path:
    deck: Any = pptx.Presentation()
    first = deck.slides.add_slide(deck.slide_layouts[1])
    first.shapes.title.text = "Retention"
    first.placeholders[1].text = "Rows are kept for seven years."
    first.notes_slide.notes_text_frame.text = "Say why it is seven."
    second = deck.slides.add_slide(deck.slide_layouts[5])
    second.shapes.title.text = "Owners"
    table = second.shapes.add_table(2, 2, 0, 3_000_000, 3_000_000, 3_000_000).table
    for row, values in enumerate([("Table", "Owner"), ("orders", "Sales\nNorth")]):
        for column, value in enumerate(values):
            table.cell(row, column).text = value
    deck.save(str(path))
    return path


def workbook(path: Path, sheets: dict[str, list[list[object]]], hidden: str | None = None) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
        if name == hidden:
            sheet.sheet_state = "hidden"
    book.save(path)
    return path


def word(path: Path, text: str = "Rows are kept.") -> Path:
    document: Any = docx.Document()
    document.add_paragraph(text)
    document.save(str(path))
    return path


def repacked(source: Path, path: Path, changes: dict[str, bytes]) -> Path:
    """The archive with entries replaced or added."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            if name not in changes:
                new.writestr(old.getinfo(name), old.read(name))
        for name, data in changes.items():
            new.writestr(name, data)
    return path


def drawn(text: str) -> Image.Image:
    image = Image.new("L", (1400, 200), 255)
    ImageDraw.Draw(image).text((60, 60), text, 0, font=ImageFont.load_default(size=50))
    return image


def scan(path: Path, *pages: str, resolution: float = 300) -> Path:
    """A PDF of pictures of text, a line a page."""
    first, *others = [drawn(page) for page in pages]
    first.save(path, "PDF", save_all=True, append_images=others, resolution=resolution)
    return path


def zipped(*names: str, data: bytes = b"content " * 50) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, data)
    return buffer.getvalue()


def compound_file(stream: str) -> bytes:
    """The smallest file of the kind that old Office files are, with one empty stream ([MS-CFB])."""
    free, end, none = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF
    magic = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    header = struct.pack("<8s16x5H6x9I", magic, 0x3E, 3, 0xFFFE, 9, 6, 0, 1, 1, 0, 4096, end, 0, end, 0)
    header += struct.pack("<109I", 0, *[free] * 108)
    table = struct.pack("<128I", 0xFFFFFFFD, end, *[free] * 126)

    def entry(name: str, kind: int, child: int) -> bytes:
        encoded = name.encode("utf-16-le") + b"\0\0" if name else b""
        links = (kind, 1, none, none, child)
        return struct.pack("<64sHBB3I16x4x16xIQ", encoded, len(encoded), *links, end, 0)

    return header + table + entry("Root Entry", 5, 1) + entry(stream, 2, none) + entry("", 0, none) * 2


def pdf_with_nul(*lines: str) -> bytes:
    """A page of lines of ASCII, in a font that says of its first character that it stands for NUL."""
    shown = "".join(f"BT /F 9 Tf 9 {700 - 50 * n} Td ({line}) Tj ET\n" for n, line in enumerate(lines))
    streams = [
        shown.replace("\0", "\\001"),
        "/CMapType 2 def\nbegincmap\n1 begincodespacerange\n<00> <FF>\nendcodespacerange\n"
        "2 beginbfrange\n<01> <01> <0000>\n<20> <7E> <0020>\nendbfrange\nendcmap\n",
    ]
    bodies = [f"<</Length {len(stream)}>> stream\n{stream}endstream" for stream in streams]
    return (
        "%PDF-1.4\n1 0 obj <</Type /Catalog /Pages 2 0 R>> endobj\n"
        "2 0 obj <</Type /Pages /Kids [3 0 R] /Count 1>> endobj\n"
        "3 0 obj <</Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R\n"
        "  /Resources <</Font <</F 6 0 R>>>>>> endobj\n"
        f"4 0 obj {bodies[0]} endobj\n5 0 obj {bodies[1]} endobj\n"
        "6 0 obj <</Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 5 0 R>> endobj\n"
        "trailer <</Root 1 0 R>>\nstartxref\n0\n%%EOF\n"
    ).encode()


def looping_pdf(kids: bytes, parent: bytes) -> bytes:
    """Page trees of two levels that hold one another."""
    return (
        b"%PDF-1.4\n1 0 obj <</Type /Catalog /Pages 2 0 R>> endobj\n"
        b"2 0 obj <</Type /Pages /Count 2 /Kids [" + kids + b"] /Parent " + parent + b">> endobj\n"
        b"3 0 obj <</Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents 6 0 R\n"
        b"  /Resources <</Font <</F 5 0 R>>>>>> endobj\n"
        b"4 0 obj <</Type /Pages /Count 1 /Kids [2 0 R] /Parent 2 0 R>> endobj\n"
        b"5 0 obj <</Type /Font /Subtype /Type1 /BaseFont /Helvetica>> endobj\n"
        b"6 0 obj <</Length 28>> stream\nBT /F 9 Tf 9 80 Td (Above) Tj ET\nendstream endobj\n"
        b"trailer <</Root 1 0 R>>\nstartxref\n0\n%%EOF\n"
    )


def long_pdf(pages: int) -> bytes:
    """Written by hand, as a library takes longer for it than its reader."""
    objects = [
        "1 0 obj <</Type /Catalog /Pages 2 0 R>>",
        "3 0 obj <</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>",
    ]
    for page in range(pages):
        text = f"BT /F 9 Tf 9 80 Td (This is sheet {page} of many.) Tj ET"
        place = "/Parent 2 0 R /MediaBox [0 0 300 300] /Resources <</Font <</F 3 0 R>>>>"
        objects.append(f"{2 * page + 4} 0 obj <</Type /Page {place} /Contents {2 * page + 5} 0 R>>")
        objects.append(f"{2 * page + 5} 0 obj <</Length {len(text)}>> stream\n{text}\nendstream")
    kids = " ".join(f"{2 * page + 4} 0 R" for page in range(pages))
    objects.append(f"2 0 obj <</Type /Pages /Count {pages} /Kids [{kids}]>>")
    body = " endobj\n".join(objects)
    return f"%PDF-1.4\n{body} endobj\ntrailer <</Root 1 0 R>>\nstartxref\n0\n%%EOF\n".encode()
