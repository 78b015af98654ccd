"""PDF files to parts. Only `unstructured.py` imports this: it tells the library first not to report its use."""

import os
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pdfminer.pdfdocument import PDFDocument, PDFEncryptionError
from pdfminer.pdfparser import PDFParser
from unstructured.documents.elements import Element, Footer, Header, Title
from unstructured.partition.pdf import partition_pdf, pdf_has_extractable_text
from unstructured.partition.text import partition_text

from services.ingest.adapters import ocr
from services.ingest.adapters.elements import LANGUAGES, LIST_ITEM, SENTENCE_ENDS, parts_of, with_guessed_headings
from services.ingest.domain.extraction import ExtractionFailed, Part, clean

_TAIL_BYTES = 2048
_WRAPPED_LINE_CHARS = 60
# What the library writes for a sign of a font that does not say which character it draws.
_NO_CHARACTER = re.compile(r"\(cid:\d+\)")
SMALLEST_PDF = b"""%PDF-1.4
1 0 obj <</Type /Catalog /Pages 2 0 R>> endobj
2 0 obj <</Type /Pages /Kids [3 0 R] /Count 1>> endobj
3 0 obj <</Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents 4 0 R
  /Resources <</Font <</F 5 0 R>>>>>> endobj
4 0 obj <</Length 53>> stream
BT /F 9 Tf 9 80 Td (Above) Tj 0 -50 Td (Below) Tj ET
endstream endobj
5 0 obj <</Type /Font /Subtype /Type1 /BaseFont /Helvetica>> endobj
trailer <</Root 1 0 R>>
startxref
0
%%EOF
"""


def read_pdf(path: Path, ocr_languages: str | None = None) -> Iterator[Part]:
    """With languages (tesseract's names, joined by +) pages without text are read by OCR."""
    _check(path)
    elements = partition_pdf(filename=str(path), strategy="fast", languages=LANGUAGES)
    # The library swallows what goes wrong and answers with nothing; asking again tells trouble from a scan.
    if not elements and pdf_has_extractable_text(filename=str(path)):
        raise ExtractionFailed("a page of the file cannot be read, or is too complex a drawing")
    # What stands at the very top of a page is a header to the library, and often the title of a section.
    found = parts_of(_without_running_heads(elements), headings=(Title, Header))
    parts = [replace(part, text=text) for part in found if (text := _NO_CHARACTER.sub("", part.text).strip())]
    if ocr_languages:
        parts += _scanned(path, ocr_languages, {part.page for part in parts})
        parts.sort(key=lambda part: part.page or 0)
    yield from with_guessed_headings(_rejoined(parts))


def _scanned(path: Path, languages: str, pages_with_text: Container[int | None]) -> Iterator[Part]:
    for page, text in ocr.read_pages(path, languages, skip=pages_with_text):
        if text := clean(text):
            parts = parts_of(partition_text(text=text, languages=LANGUAGES))
            yield from (replace(part, page=page) for part in parts)


def _check(path: Path) -> None:
    with path.open("rb") as file:
        try:
            PDFDocument(PDFParser(file))
        except PDFEncryptionError as error:
            raise ExtractionFailed("the file needs a password", code="password_required") from error
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _TAIL_BYTES))
        # Parsers repair a cut file by leaving out what is missing, which would look like the whole of it.
        if b"%%EOF" not in file.read():
            raise ExtractionFailed("the file ends before its end mark: it was cut short")


def _without_running_heads(elements: list[Element]) -> list[Element]:
    """Leaves out headers and footers that come back on other pages with nothing but the number changed."""

    def key(element: Element) -> str:
        return re.sub(r"\d+", "", element.text)

    seen = Counter(key(element) for element in elements if isinstance(element, Header | Footer))
    return [e for e in elements if not (isinstance(e, Header | Footer) and seen[key(e)] > 1)]


def _rejoined(parts: Iterable[Part]) -> Iterator[Part]:
    """Undoes the breaks that a PDF with widely set lines has inside its sentences."""
    before: Part | None = None
    for part in parts:
        if before and _goes_on(before, part):
            before = Part("text", f"{before.text} {part.text}", part.page)
        else:
            if before:
                yield before
            before = part
    if before:
        yield before


def _goes_on(before: Part, part: Part) -> bool:
    if before.page != part.page or part.kind != "text" or before.text[-1:] in SENTENCE_ENDS:
        return False
    wrapped = before.kind == "text" and len(before.text) >= _WRAPPED_LINE_CHARS and not LIST_ITEM.match(part.text)
    return part.text[:1].islower() or wrapped
