"""Which documents a search is narrowed to."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NoReturn
from uuid import UUID

from kbmesh.errors import InvalidArgument
from kbmesh.provenance import Category
from services.search.domain.ids import parse_id

MAX_DOCUMENT_IDS: Final = 100
MAX_CONTENT_TYPE_CHARS: Final = 255
MAX_METADATA_KEYS: Final = 10
MAX_METADATA_KEY_CHARS: Final = 100
MAX_METADATA_CHARS: Final = 16 * 1024
"""Written as JSON: as much as a document can have."""


@dataclass(frozen=True, slots=True)
class Range:
    """Of numbers, or of texts in the order of their code points; a bound belongs to it, None: open there."""

    key: str
    gte: str | float | None
    lte: str | float | None


@dataclass(frozen=True, slots=True)
class Filters:
    """What must hold of a document, all of it; None or empty: anything."""

    category: Category | None = None
    document_ids: frozenset[UUID] = frozenset()
    content_type: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)
    """Has these values, beside others; of a list, all of its texts in any order."""
    ranges: tuple[Range, ...] = ()
    created_after: datetime | None = None
    """From then on."""
    created_before: datetime | None = None


def parse_filters(
    *,
    category: str = "",
    document_ids: Sequence[str] = (),
    content_type: str = "",
    metadata: Mapping[str, object] | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
) -> Filters | None:
    """None if nothing is asked for. In `metadata` an object is a range, {"gte": 1, "lte": 2}.

    Raises:
        InvalidArgument: `invalid_filter`, with what is wrong.
    """
    if len(document_ids) > MAX_DOCUMENT_IDS:
        _refuse(f"names at most {MAX_DOCUMENT_IDS} documents")
    if len(content_type) > MAX_CONTENT_TYPE_CHARS or "\x00" in content_type:
        _refuse(f"takes a content type of at most {MAX_CONTENT_TYPE_CHARS} characters, without NUL")
    metadata = metadata or {}
    _check_metadata(metadata)
    filters = Filters(
        category=_category(category) if category else None,
        document_ids=frozenset(parse_id(text, of="document", code="invalid_filter") for text in document_ids),
        content_type=content_type or None,
        metadata={key: value for key, value in metadata.items() if not isinstance(value, dict)},
        ranges=tuple(_range(key, value) for key, value in metadata.items() if isinstance(value, dict)),
        created_after=created_after,
        created_before=created_before,
    )
    return None if filters == Filters() else filters


def _category(text: str) -> Category:
    try:
        return Category(text)
    except ValueError:
        _refuse(f"takes a category of {', '.join(Category)}, not {text[:40]!r}")


def _check_metadata(metadata: Mapping[str, object]) -> None:
    if len(metadata) > MAX_METADATA_KEYS:
        _refuse(f"has at most {MAX_METADATA_KEYS} keys of metadata")
    if len(json.dumps(metadata)) > MAX_METADATA_CHARS:
        _refuse(f"has metadata of at most {MAX_METADATA_CHARS} characters")
    for key, value in metadata.items():
        if not 1 <= len(key) <= MAX_METADATA_KEY_CHARS or "\x00" in key:
            _refuse(f"has keys of metadata of 1 to {MAX_METADATA_KEY_CHARS} characters, without NUL")
        if isinstance(value, list):
            if not all(isinstance(text, str) and _storable(text) for text in value):
                _refuse(f"compares {key!r} with a list that holds something else than texts without NUL")
        elif not isinstance(value, dict) and not _storable(value):
            _refuse(f"compares {key!r} with a number that is none, or a text with NUL")


def _range(key: str, bounds: Mapping[str, object]) -> Range:
    gte, lte = bounds.get("gte"), bounds.get("lte")
    given = [bound for bound in (gte, lte) if bound is not None]
    numbers = all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in given)
    texts = all(isinstance(bound, str) for bound in given)
    if not given or bounds.keys() - {"gte", "lte"} or not (numbers or texts) or not all(map(_storable, given)):
        _refuse(f'gives {key!r} a range that is not like {{"gte": 1, "lte": 2}}, both numbers or both texts')
    return Range(key, gte, lte)  # type: ignore[arg-type]


def _storable(value: object) -> bool:
    """PostgreSQL refuses NUL in texts, and JSON has no NaN and no infinity."""
    return math.isfinite(value) if isinstance(value, float) else not (isinstance(value, str) and "\x00" in value)


def _refuse(reason: str) -> NoReturn:
    raise InvalidArgument(f"a filter {reason}", code="invalid_filter")
