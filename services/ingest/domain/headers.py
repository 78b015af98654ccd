"""What the embedding model reads ahead of a chunk of a document: which file it is from, and where in it."""

from dataclasses import dataclass
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
    """At most MAX_TOKENS. `headings` are outermost first; where they are too long, the outer ones are left out."""
    filename = _beginning(origin.filename, MAX_FILENAME_TOKENS, splitter)
    header = f"File: {filename}\nCategory: {origin.category.replace('_', ' ')}"
    if not headings:
        return header
    header += "\nSection: "
    room = MAX_TOKENS - splitter.count(header)
    *outer, section = headings
    section = _beginning(section, room, splitter)
    for heading in reversed(outer):
        longer = f"{heading} > {section}"
        if len(longer) > MAX_PART_CHARS or splitter.count(longer) > room:
            break
        section = longer
    return header + section


def _beginning(text: str, tokens: int, splitter: Splitter) -> str:
    text = text[:MAX_PART_CHARS]
    if splitter.count(text) <= tokens:
        return text
    start, end = splitter.split(text, tokens, splitter.limit)[0]
    return text[start:end]
