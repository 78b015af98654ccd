"""What extraction yields: a text, the blocks it is made of, and the chunks cut from it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from kbmesh.errors import KbmeshError

BlockKind = Literal["heading", "text", "table"]

_LINE_BREAK = re.compile(r"\r\n|[\r\v\f\x85\u2028\u2029]")
# PostgreSQL refuses NUL, UTF-8 refuses lone surrogates, and nobody can read the other control characters.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


class ExtractionFailed(KbmeshError):
    """The file cannot become text. `code` is one of corrupt_file, password_required, archive_bomb,
    converter_missing, extraction_timeout, extraction_memory, extraction_crashed."""

    default_code: ClassVar[str] = "corrupt_file"


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a file in reading order, before it has a place in the text."""

    kind: BlockKind
    text: str
    page: int | None = None
    level: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """`text[start:end]` of a document, in code points. Pages and levels count from 1; tables have a row a line."""

    start: int
    end: int
    kind: BlockKind
    page: int | None = None
    level: int | None = None


@dataclass(frozen=True, slots=True)
class ExtractedDocument:
    """Blocks in reading order, without overlap, joined by a blank line. No blocks: the file holds no text."""

    text: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class ChunkDraft:
    """`content` is `text[char_start:char_end]` of the document; `token_count` leaves out the model's special
    tokens; `headings` are outermost first, as in force where the chunk begins. `header` is what the model
    reads ahead of the content."""

    ordinal: int
    content: str
    char_start: int
    char_end: int
    token_count: int
    page: int | None
    headings: tuple[str, ...]
    header: str = ""


def clean(text: str) -> str:
    """Line breaks as newlines, characters that no database or reader can take removed, ends stripped."""
    return _UNPRINTABLE.sub("", _LINE_BREAK.sub("\n", text)).strip()


def assemble(parts: Iterable[Part]) -> ExtractedDocument:
    """Joins the parts that hold text into one document. Cleaning comes first, so that the spans are true."""
    texts: list[str] = []
    blocks: list[Block] = []
    start = 0
    for part in parts:
        if text := clean(part.text):
            blocks.append(Block(start, start + len(text), part.kind, part.page, part.level))
            texts.append(text)
            start += len(text) + 2
    return ExtractedDocument("\n\n".join(texts), tuple(blocks))
