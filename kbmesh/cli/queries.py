"""Queries that an operator has judged, from a file."""

from collections.abc import Sequence
from pathlib import Path

import click
from google.protobuf.json_format import Parse, ParseError

from kbmesh.embedding.v1.spaces_pb2 import JudgedQuery


def read_queries(context: click.Context, parameter: click.Parameter, path: Path | None) -> Sequence[JudgedQuery]:
    """For an option of click: JSON lines, none without a path.

    Raises:
        click.BadParameter: no query in there, or a line that is none; it is told by its number alone.
    """
    if path is None:
        return ()
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        raise click.BadParameter(f"{path} is not a text file in UTF-8") from None
    queries = [_judged(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not queries:
        raise click.BadParameter(f"{path} holds no query")
    return queries


def _judged(number: int, line: str) -> JudgedQuery:
    try:
        judged = Parse(line, JudgedQuery(), ignore_unknown_fields=True)
    except ParseError:
        judged = JudgedQuery()
    if not judged.query.strip():
        raise click.BadParameter(f'line {number} is not like {{"query": "a question", "relevant": ["an id"]}}')
    return judged
