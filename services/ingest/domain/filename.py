import re
import unicodedata
from typing import Final

from kbmesh.errors import InvalidArgument

MAX_LENGTH: Final = 255

# Control characters, and the marks that make a name read in another order than it is stored.
_INVISIBLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def clean_filename(name: str) -> str:
    """The last part of a path, as one can show and compare it: NFC, nothing invisible, 1 to 255 characters.

    Raises:
        InvalidArgument: nothing is left, or it is too long.
    """
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    cleaned = " ".join(_INVISIBLE.sub("", last).split())
    if cleaned.strip(".") == "":
        raise InvalidArgument("the file needs a name", code="filename_missing")
    if len(cleaned) > MAX_LENGTH:
        raise InvalidArgument(f"the file name is longer than {MAX_LENGTH} characters", code="filename_too_long")
    return cleaned
