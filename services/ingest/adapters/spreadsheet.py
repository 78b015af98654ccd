"""Spreadsheets and comma-separated values as tables with a row a line."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, time
from itertools import islice
from pathlib import Path

import openpyxl

from services.ingest.domain.encoding import decode_text
from services.ingest.domain.extraction import Part, clean

_MAX_ROWS = 1_048_576
_DELIMITERS = ",;\t|"
_SAMPLE_ROWS = 20


def read_xlsx(path: Path) -> Iterator[Part]:
    """Each sheet that a reader sees, under its name; of formulas the values that were last computed.
    Empty rows end a table."""
    with path.open("rb") as file:
        workbook = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        for sheet in workbook.worksheets:
            if sheet.sheet_state != "visible":
                continue
            # What a file claims of its size would fill memory with empty cells.
            sheet.reset_dimensions()
            rows = sheet.iter_rows(max_row=_MAX_ROWS, values_only=True)
            tables = list(_tables([_cell(value) for value in row] for row in rows))
            if tables:
                yield Part("heading", sheet.title, level=1)
                yield from (Part("table", table) for table in tables)


def read_csv(path: Path) -> Iterator[Part]:
    text = clean(decode_text(path.read_bytes()))
    csv.field_size_limit(max(len(text), 1))
    rows = csv.reader(io.StringIO(text), delimiter=_delimiter(text))
    yield from (Part("table", table) for table in _tables([_line(cell) for cell in row] for row in rows if row))


def _tables(rows: Iterable[list[str]]) -> Iterator[str]:
    lines: list[str] = []
    for row in rows:
        while row and not row[-1]:
            row.pop()
        if row:
            lines.append(" | ".join(row))
        elif lines:
            yield "\n".join(lines)
            lines = []
    if lines:
        yield "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(" ", "seconds")
    if isinstance(value, float):
        return f"{value:.15g}"
    return _line(str(value))


def _line(text: str) -> str:
    return " ".join(text.split())


def _delimiter(text: str) -> str:
    """The sign that cuts most of the first rows into the same number of cells, of more than one."""

    def agreement(delimiter: str) -> tuple[int, int]:
        rows = csv.reader(io.StringIO(text), delimiter=delimiter)
        widths = Counter(len(row) for row in islice(rows, _SAMPLE_ROWS) if len(row) > 1)
        return max(((count, width) for width, count in widths.items()), default=(0, 0))

    return max(_DELIMITERS, key=agreement)
