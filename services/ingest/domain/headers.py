"""What the embedding model reads ahead of a chunk of a document: which file it is from, and where in it."""

from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from kbmesh.provenance import Category
from services.ingest.domain.chunking import Splitter

MAX_TOKENS: Final = 64
MAX_FILENAME_TOKENS: Final = 24
# What the model has no token for counts as one, whatever its length.
MAX_PART_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Origin:
    """The document that a text was extracted from."""

    filename: str
    category: Category


def compose_header(origin: Origin, splitter: Splitter, headings: tuple[str, ...]) -> str:
    """At most MAX_TOKENS, and nothing that says nothing: a name without a letter, the category `other`. `headings`
    are outermost first; where they are too long, the outer ones are left out."""
    lines = []
    if any(map(str.isalpha, PurePath(origin.filename).stem)):
        lines.append(f"File: {_beginning(origin.filename, MAX_FILENAME_TOKENS, splitter)}")
    if origin.category is not Category.OTHER:
        lines.append(f"Category: {origin.category.replace('_', ' ')}")
    if headings:
        room = MAX_TOKENS - splitter.count("\n".join([*lines, "Section: "]))
        *outer, section = headings
        section = _beginning(section, room, splitter)
        for heading in reversed(outer):
            longer = f"{heading} > {section}"
            if len(longer) > MAX_PART_CHARS or splitter.count(longer) > room:
                break
            section = longer
        lines.append(f"Section: {section}")
    return "\n".join(lines)


def _beginning(text: str, tokens: int, splitter: Splitter) -> str:
    text = text[:MAX_PART_CHARS]
    if splitter.count(text) <= tokens:
        return text
    start, end = splitter.split(text, tokens, splitter.limit)[0]
    return text[start:end]
