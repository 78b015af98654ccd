import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kbmesh.errors import InvalidArgument

MAX_QUERY_LENGTH: Final = 4_000
MAX_KB_IDS: Final = 100
MAX_LIMIT: Final = 50
DEFAULT_LIMIT: Final = 5

_CONTROLS_TO_SPACES: Final = {
    point: " " for point in range(0xA0) if unicodedata.category(chr(point)) == "Cc" and chr(point) not in "\n\t"
}


@dataclass(frozen=True, slots=True)
class Query:
    """A question that was checked. `kb_ids` None: all knowledge bases that the caller can see."""

    text: str
    kb_ids: frozenset[UUID] | None = None
    limit: int = DEFAULT_LIMIT


def parse_query(text: str, kb_ids: Sequence[str] = (), limit: int | None = None) -> Query:
    """
    Raises:
        InvalidArgument: empty_query, query_too_long, too_many_kb_ids, invalid_kb_id or limit_out_of_range.
    """
    text = text.translate(_CONTROLS_TO_SPACES).strip()
    if not text:
        raise InvalidArgument("the query is empty", code="empty_query")
    if len(text) > MAX_QUERY_LENGTH:
        raise InvalidArgument(
            f"the query has {len(text)} characters, at most {MAX_QUERY_LENGTH} are read", code="query_too_long"
        )
    if len(kb_ids) > MAX_KB_IDS:
        raise InvalidArgument(f"name at most {MAX_KB_IDS} knowledge bases", code="too_many_kb_ids")
    limit = DEFAULT_LIMIT if limit is None else limit
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidArgument(f"the limit is 1 to {MAX_LIMIT}, not {limit}", code="limit_out_of_range")
    return Query(text, frozenset(map(_kb_id, kb_ids)) or None, limit)


def _kb_id(text: str) -> UUID:
    try:
        # UUID() also takes braces, urn: prefixes and hyphens anywhere.
        if len(text) == 36 and str(parsed := UUID(text)) == text.lower():
            return parsed
    except ValueError:
        pass
    raise InvalidArgument(f"not the id of a knowledge base: {text[:40]!r}", code="invalid_kb_id")
