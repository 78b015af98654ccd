from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from kbmesh.errors import InvalidArgument
from kbmesh.provenance import Category
from services.search.domain.filters import Range, parse_filters

DOCUMENT = uuid4()


def test_nothing_asked_for_is_no_filter() -> None:
    assert parse_filters() is parse_filters(metadata={}) is None


def test_values_and_ranges_of_metadata_are_told_apart() -> None:
    metadata = {"owner": "Finance", "tags": ["a"], "until": None, "year": {"gte": 2024}, "due": {"lte": "2026-01"}}

    filters = parse_filters(category="strategy", document_ids=[str(DOCUMENT).upper()], metadata=metadata)

    assert filters is not None
    assert (filters.category, filters.document_ids) == (Category.STRATEGY, frozenset({DOCUMENT}))
    assert filters.metadata == {"owner": "Finance", "tags": ["a"], "until": None}
    assert filters.ranges == (Range("year", 2024, None), Range("due", None, "2026-01"))


@pytest.mark.parametrize(
    "fields",
    [
        {"category": "Strategy"},
        {"category": "'; DROP TABLE documents; --"},
        {"document_ids": ["1"]},
        {"document_ids": [str(DOCUMENT)] * 101},
        {"content_type": "a" * 256},
        {"content_type": "text/\x00"},
    ],
)
def test_what_no_document_can_have_is_refused(fields: Mapping[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="invalid_filter"):
        parse_filters(**fields)


@pytest.mark.parametrize(
    "metadata",
    [
        {str(number): number for number in range(11)},
        {"": 1},
        {"a" * 101: 1},
        {"a\x00": 1},
        {"a": "b\x00"},
        {"a": "b" * 17_000},
        {"a": float("nan")},
        {"a": float("-inf")},
        {"a": ["b", 1]},
        {"a": ["\x00"]},
        {"a": [["b"]]},
        {"a": {}},
        {"a": {"gte": None}},
        {"a": {"gte": 1, "lte": "2"}},
        {"a": {"gte": True}},
        {"a": {"gte": [1]}},
        {"a": {"gte": {"gte": 1}}},
        {"a": {"gte": float("nan")}},
        {"a": {"lte": "\x00"}},
        {"a": {"gte": 1, "eq": 1}},
    ],
)
def test_what_metadata_cannot_be_compared_with_is_refused(metadata: Mapping[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="invalid_filter"):
        parse_filters(metadata=metadata)
