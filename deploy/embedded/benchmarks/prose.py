"""Texts drawn from the example documents, the same in every run."""

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EXAMPLES: Final = Path(__file__).parents[3] / "examples"
SOURCES: Final = ("data_dictionary.md", "release_notes.txt", "industry_benchmark.md", "source/handbook.md")
PARAGRAPHS: Final = 5
SENTENCES: Final = (3, 6)
ROWS: Final = 8
TABLE_EVERY: Final = 3
WORDS: Final = (3, 330)


@dataclass(frozen=True, slots=True)
class Page:
    """About 400 words; the first and every third after it have a table too."""

    heading: str
    paragraphs: list[str]
    table: list[list[str]]


def sentences() -> list[str]:
    prose = " ".join((EXAMPLES / source).read_text(encoding="utf-8") for source in SOURCES)
    return [text for text in re.split(r"(?<=[.!?])\s+", " ".join(prose.split())) if len(text) > 20]


def make_texts(count: int, seed: int) -> list[str]:
    """Of 3 to 330 words, every length as often: about 5 to 500 tokens."""
    chosen = random.Random(seed)  # noqa: S311 - the same in every run
    prose = sentences()
    texts = []
    for _ in range(count):
        length = chosen.randint(*WORDS)
        words: list[str] = []
        while len(words) < length:
            words += chosen.choice(prose).split()
        texts.append(" ".join(words[:length]))
    return texts


def make_pages(count: int, seed: int) -> list[Page]:
    # Marks that would mean something in Markdown or are in no PDF core font say nothing about speed.
    plain = [re.sub(r"[^A-Za-z0-9 .,;:()%-]", "", text) for text in sentences()]
    prose = [text for text in plain if len(text) < 300]
    chosen = random.Random(seed)  # noqa: S311 - the same in every run
    return [
        Page(
            heading=f"Part {number} of the handbook",
            paragraphs=[" ".join(chosen.choices(prose, k=chosen.randint(*SENTENCES))) for _ in range(PARAGRAPHS)],
            table=make_rows(ROWS, 4, seed + number) if number % TABLE_EVERY == 1 else [],
        )
        for number in range(1, count + 1)
    ]


def make_rows(count: int, columns: int, seed: int) -> list[list[str]]:
    """A table of names and numbers under a row of titles."""
    chosen = random.Random(seed)  # noqa: S311 - the same in every run
    names = sorted({word for text in sentences() for word in re.findall(r"[a-z]{5,}", text)})
    titles = ["name", *(f"column_{number}" for number in range(1, columns))]
    rows = [
        [" ".join(chosen.choices(names, k=2)), *(str(chosen.randrange(100_000)) for _ in range(columns - 1))]
        for _ in range(count)
    ]
    return [titles, *rows]
