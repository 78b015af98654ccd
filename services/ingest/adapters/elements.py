"""Elements of the unstructured library as parts of a document."""

import re
from collections.abc import Iterator

from lxml import html
from unstructured.documents.elements import Element, ListItem, Table, Title

from services.ingest.domain.extraction import BlockKind, Part

SENTENCE_ENDS = ".;:!?…。！？"
LIST_ITEM = re.compile(r"- |\(?\w{1,3}[.)]\s")
# Named so that the library does not try to find out; it makes no other use of it where this service asks.
LANGUAGES = ["eng"]
MAX_HEADING_WORDS = 12
_NUMBERS = re.compile(r"\d+(?:\.\d+)*[.)]?\s")


def parts_of(elements: list[Element], headings: tuple[type[Element], ...] = (Title,)) -> Iterator[Part]:
    """One part an element; the items of a list stay together as lines of one."""
    items: list[str] = []
    page = None
    for element in elements:
        if items and (not isinstance(element, ListItem) or element.metadata.page_number != page):
            yield Part("text", "\n".join(items), page)
            items = []
        page = element.metadata.page_number
        if isinstance(element, ListItem):
            items.append(element.text if LIST_ITEM.match(element.text) else f"- {element.text}")
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


def with_guessed_headings(parts: Iterator[Part]) -> Iterator[Part]:
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
        len(text.split()) <= MAX_HEADING_WORDS
        and not text[0].islower()
        and any(character.isalpha() for character in text)
        and text[-1] not in SENTENCE_ENDS + ","
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
