"""Markdown in fewer characters, without a word or a block of code cut in two."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final

from markdown_it import MarkdownIt

MARK: Final = "…"
"""Stands at the end of a text that was shortened."""

_MARKDOWN: Final = MarkdownIt("commonmark").enable("table").disable("inline")
_PROSE: Final = "paragraph_open"
_CODE: Final = frozenset({"fence", "code_block"})
_WHOLE_OR_NOT: Final = _CODE | {"table_open", "html_block"}
_LINE: Final = re.compile(r"[^\n\r]*(?:\r\n?|\n|\Z)")
# The number of a list item and code within a sentence are read over: a full stop there ends nothing.
_SENTENCE_END: Final = re.compile(
    r"\A[\s>*+-]*\d+\.|(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)"
    r"|(?<!\be\.g)(?<!\bi\.e)(?P<end>[.!?…][\"'”’)\]]*)(?=\s)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Shortened:
    text: str
    shortened: bool


def shorten(text: str, limit: int, *, keep_code: bool = True) -> Shortened | None:
    """`text` in at most `limit` code points, or as much from its start as there is room for, up to the end of a
    sentence, list item, paragraph, table or block of code; None if not even one sentence fits.

    Args:
        keep_code: False to leave blocks of code out where not all of the text fits, so that more of the rest does.
    """
    if len(text) <= limit:
        return Shortened(text, False)
    text = text if keep_code else _without_code(text)
    ends = _ends(text)
    fitting = bisect_right(ends, limit, key=lambda end: end[0] + len(end[1]))
    if not fitting:
        return None
    end, mark = ends[fitting - 1]
    return Shortened(text[:end] + mark, True)


@lru_cache(maxsize=1024)
def _ends(text: str) -> tuple[tuple[int, str], ...]:
    """Where `text` can end, and the mark that it ends with then, the first place first."""
    ends = []
    for kind, start, end in _blocks(text):
        block = text[start:end].rstrip()
        if kind in _WHOLE_OR_NOT:
            ends.append((start + len(block), "\n\n" + MARK))  # neither inside the fence nor a row of the table
        elif kind == _PROSE:
            sentences = (found.end() for found in _SENTENCE_END.finditer(block) if found["end"])
            # What ends with a colon promises more.
            ends += [(start + at, " " + MARK) for at in (*sentences, len(block)) if block[at - 1] != ":"]
    return tuple(ends)


@lru_cache(maxsize=1024)
def _without_code(text: str) -> str:
    kept, at = [], 0
    for kind, start, end in _blocks(text):
        if kind in _CODE:
            kept.append(text[at:start])
            at = end
    kept.append(text[at:])
    return "\n\n".join(part.strip("\r\n") for part in kept if part.strip())


def _blocks(text: str) -> Iterator[tuple[str, int, int]]:
    """Type of token, start and end in `text`, of each block that has them."""
    starts = [0, *accumulate(len(line) for line in _LINE.findall(text))]
    for token in _MARKDOWN.parse(text):
        if token.map is not None:
            yield token.type, starts[token.map[0]], starts[token.map[1]]
