import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final
from uuid import UUID

from kbmesh.errors import InvalidArgument
from services.search.domain.ids import parse_id

MAX_QUERY_LENGTH: Final = 4_000
MAX_KB_IDS: Final = 100
MAX_LIMIT: Final = 50
DEFAULT_LIMIT: Final = 5
MAX_CHANNEL_ID_LENGTH: Final = 200
MAX_EXPAND: Final = 3

_CONTROLS_TO_SPACES: Final = {
    point: " " for point in range(0xA0) if unicodedata.category(chr(point)) == "Cc" and chr(point) not in "\n\t"
}


class Mode(Enum):
    """Which legs answer."""

    HYBRID = "hybrid"
    VECTOR = "vector"
    KEYWORD = "keyword"

    @property
    def by_vector(self) -> bool:
        return self is not Mode.KEYWORD

    @property
    def by_keywords(self) -> bool:
        return self is not Mode.VECTOR


@dataclass(frozen=True, slots=True)
class Query:
    """A question that was checked. `kb_ids` None: all knowledge bases that the caller can see."""

    text: str
    kb_ids: frozenset[UUID] | None = None
    limit: int = DEFAULT_LIMIT
    mode: Mode = Mode.HYBRID
    min_score: float = 0.0
    """Of the rank score, in [0, 1]."""
    channel_id: str | None = None
    expand: int = 0
    """Chunks on each side that a passage is merged with."""


def parse_query(
    text: str,
    kb_ids: Sequence[str] = (),
    limit: int | None = None,
    *,
    mode: Mode = Mode.HYBRID,
    min_score: float = 0.0,
    channel_id: str = "",
    expand: int = 0,
) -> Query:
    """
    Raises:
        InvalidArgument: empty_query, query_too_long, too_many_kb_ids, invalid_kb_id, limit_out_of_range,
            min_score_out_of_range, invalid_channel_id or expand_out_of_range.
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
    if not 0 <= min_score <= 1:
        raise InvalidArgument(f"the least score is 0 to 1, not {min_score}", code="min_score_out_of_range")
    if len(channel_id) > MAX_CHANNEL_ID_LENGTH or "\x00" in channel_id:
        raise InvalidArgument(
            f"the id of a channel has at most {MAX_CHANNEL_ID_LENGTH} characters, and no NUL",
            code="invalid_channel_id",
        )
    bases = frozenset(parse_id(kb_id, of="knowledge base", code="invalid_kb_id") for kb_id in kb_ids)
    if not 0 <= expand <= MAX_EXPAND:
        raise InvalidArgument(f"expand is 0 to {MAX_EXPAND}, not {expand}", code="expand_out_of_range")
    return Query(text, bases or None, limit, mode, min_score, channel_id or None, expand)
