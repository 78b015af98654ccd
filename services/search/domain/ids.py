from uuid import UUID

from kbmesh.errors import InvalidArgument


def parse_id(text: str, *, of: str, code: str) -> UUID:
    """
    Raises:
        InvalidArgument: `code`. It is not the canonical form of a UUID, in upper or lower case.
    """
    try:
        # UUID() also takes braces, urn: prefixes and hyphens anywhere.
        if len(text) == 36 and str(parsed := UUID(text)) == text.lower():
            return parsed
    except ValueError:
        pass
    raise InvalidArgument(f"not the id of a {of}: {text[:40]!r}", code=code)
