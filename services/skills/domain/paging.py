"""Page tokens: the id after which the next page begins, opaque to the caller."""

import base64
import binascii
from typing import Final

from kbmesh.errors import InvalidArgument

_PREFIX: Final = "after:"


def encode_token(last_id: str) -> str:
    return base64.urlsafe_b64encode((_PREFIX + last_id).encode()).decode().rstrip("=")


def decode_token(token: str) -> str:
    """The id in `token`; the empty token stands for the start, before every id.

    Raises:
        InvalidArgument: not a token of `encode_token`.
    """
    if not token:
        return ""
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not text.startswith(_PREFIX) or encode_token(text.removeprefix(_PREFIX)) != token:
        raise InvalidArgument("page_token is not one that this method has returned", code="bad_page_token")
    return text.removeprefix(_PREFIX)
