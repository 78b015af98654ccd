"""A caller's conditions on documents, put into a statement beside its access predicate."""

# ruff: noqa: S608 - what is put into the statements are constants of this module and numbers of arguments

import json
from collections.abc import Iterator
from typing import Any, Final

from services.search.adapters.reach import reaching
from services.search.adapters.statements import IN_BASES, OF_BASES, OF_CHUNKS, OF_VECTORS, VISIBLE_BASES
from services.search.domain.context import Reach
from services.search.domain.filters import Filters
from services.search.domain.retrieval import Scan, Visibility

_IN_RANGE: Final = "$ ? (($gte == null || @ >= $gte) && ($lte == null || @ <= $lte))"
"""In a JSON path a number and a text do not compare, and a list is within if one of its values is."""


def narrowed(visible: Visibility, scan: Scan, statement: str, *arguments: object) -> tuple[Any, ...]:
    """`statement` and its arguments, for the rows of those documents alone that the filters let through, or for
    the chunks of all kinds that a Reach admits."""
    if scan is Scan.INDEX or (visible.filters is not None and not isinstance(visible, Reach)):
        # Rows are found by another index, or by their documents; what is counted of whole bases stays.
        statement = statement.replace(f"AND {OF_BASES}", f"AND {IN_BASES}")
    if isinstance(visible, Reach):
        return reaching(visible, scan, statement, *arguments)
    if visible.filters is None or not (OF_CHUNKS in statement or OF_VECTORS in statement):
        return statement, *arguments
    conditions, values = [], list(arguments)
    for condition, *given in _conditions(visible.filters):
        numbers = range(len(values) + 1, len(values) + 1 + len(given))
        conditions.append(condition.format(*(f"${number}" for number in numbers)))
        values += given
    of_documents = " AND ".join(conditions)
    statement = statement.replace(OF_VECTORS, _OF_VECTORS[scan].format(of_documents))
    return statement.replace(OF_CHUNKS, _OF_CHUNKS[scan].format(of_documents)), *values


# Exact: the planner may begin with the documents, which are few. By index: each row that the index gives is looked
# up, so that the order in which it gives them stays.
_OF_CHUNKS: Final = {
    Scan.EXACT: f"""AND document_id IN (
        SELECT documents.id FROM documents WHERE documents.kb_id = ANY({VISIBLE_BASES}) AND {{}})""",
    Scan.INDEX: "AND (SELECT {} FROM documents WHERE documents.id = document_id)",
}
_OF_VECTORS: Final = {
    Scan.EXACT: f"AND chunk_id IN (SELECT chunks.id FROM chunks WHERE true {_OF_CHUNKS[Scan.EXACT]})",
    Scan.INDEX: f"AND (SELECT true {_OF_CHUNKS[Scan.INDEX]} FROM chunks WHERE chunks.id = chunk_id)",
}


def _conditions(filters: Filters) -> Iterator[tuple[str, *tuple[object, ...]]]:
    """On `documents`, each with its arguments. Metadata is compared as in the list of documents."""
    if filters.category is not None:
        yield "documents.category = {}", filters.category
    if filters.document_ids:
        yield "documents.id = ANY({}::uuid[])", list(filters.document_ids)
    if filters.content_type is not None:
        yield "documents.content_type = {}", filters.content_type
    if filters.metadata:
        yield "documents.metadata @> {}::jsonb", json.dumps(filters.metadata)
    for one in filters.ranges:
        bounds = json.dumps({"gte": one.gte, "lte": one.lte})
        yield f"jsonb_path_exists(documents.metadata -> {{}}::text, '{_IN_RANGE}', {{}}::jsonb)", one.key, bounds
    if filters.created_after is not None:
        yield "documents.created_at >= {}", filters.created_after
    if filters.created_before is not None:
        yield "documents.created_at < {}", filters.created_before
