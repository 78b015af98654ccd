"""What a caller notes on a document beside its file, or on a record beside its content."""

import json
from collections.abc import Mapping
from typing import Final, NoReturn

from kbmesh.errors import InvalidArgument

MetadataValue = str | int | float | bool | list[str] | None
Metadata = dict[str, MetadataValue]

MAX_BYTES: Final = 16 * 1024
MAX_KEYS: Final = 64
MAX_KEY_CHARS: Final = 100
MAX_NUMBER: Final = 2**53 - 1
"""Up to here every reader of JSON sees the same integer (RFC 7493, 2.2)."""


def parse_metadata(text: str | None) -> Metadata:
    """A flat JSON object off the wire; none at all is an empty one.

    Raises:
        InvalidArgument: `invalid_metadata`. It is no such object, or beyond the limits.
    """
    if not text:
        return {}
    if len(text.encode(errors="surrogatepass")) > MAX_BYTES:
        _refuse(f"is larger than {MAX_BYTES} bytes")
    try:
        found = json.loads(text, object_pairs_hook=_without_repetition, parse_constant=_no_number)
    except (ValueError, RecursionError):
        _refuse('is not JSON; it looks like {"owner": "Finance", "tags": ["2026", "audited"]}')
    if not isinstance(found, dict):
        _refuse("is a JSON object")
    _check_entries(found)
    return found


def check_metadata(found: Metadata) -> None:
    """The same limits for what did not come as JSON.

    Raises:
        InvalidArgument: `invalid_metadata`.
    """
    if len(json.dumps(found, ensure_ascii=False).encode(errors="surrogatepass")) > MAX_BYTES:
        _refuse(f"is larger than {MAX_BYTES} bytes")
    _check_entries(found)


def _check_entries(found: Mapping[str, object]) -> None:
    if len(found) > MAX_KEYS:
        _refuse(f"has at most {MAX_KEYS} keys")
    for key, value in found.items():
        if not 1 <= len(key) <= MAX_KEY_CHARS or not _storable(key):
            _refuse(f"has keys of 1 to {MAX_KEY_CHARS} characters, none of them NUL or half of a surrogate pair")
        _check(key, value)


def _check(key: str, value: object) -> None:
    texts = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    if isinstance(value, dict) or not all(isinstance(text, str) for text in texts):
        _refuse(f"holds texts, numbers, true, false, null or lists of texts; {key!r} is something else")
    if not all(_storable(text) for text in texts):
        _refuse(f"cannot hold NUL or half of a surrogate pair, as {key!r} does")
    if isinstance(value, int | float) and abs(value) > MAX_NUMBER:
        _refuse(f"holds numbers up to {MAX_NUMBER}; write a larger one as a text, as {key!r}")


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        _refuse("names a key twice")
    return found


def _no_number(_: str) -> NoReturn:
    _refuse("has a number that is none: NaN or Infinity")


def _storable(text: str) -> bool:
    """PostgreSQL refuses NUL, UTF-8 refuses lone surrogates."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _refuse(reason: str) -> NoReturn:
    raise InvalidArgument(f"metadata {reason}", code="invalid_metadata")
