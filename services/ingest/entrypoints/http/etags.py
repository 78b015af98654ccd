"""Entity tags and the conditions on them (RFC 9110, 8.8.3 and 13.1)."""

import re
from typing import Annotated

from fastapi import Header

IfMatch = Annotated[
    str | None,
    Header(
        description="The `ETag` of the document as you have seen it; 412 `precondition_failed` if it has changed."
    ),
]
IfNoneMatch = Annotated[str | None, Header(description="An `ETag` that you have; 304 if it is still the one.")]


def etag(version: str) -> str:
    """A strong tag: If-Match never holds for a weak one."""
    return f'"{version}"'


def versions(condition: str | None) -> frozenset[str] | None:
    """What stands in the tags of a condition; None: there is none, or any version is right.

    Weak ones count too: proxies that compress make strong tags weak.
    """
    if condition is None or condition.strip() == "*":
        return None
    return frozenset(re.findall(r'"([^"]*)"', condition))


def is_known(version: str, if_none_match: str | None) -> bool:
    """The caller has this version already."""
    known = versions(if_none_match)
    return if_none_match is not None and (known is None or version in known)
