"""Bytes to text, whether or not the file says how it is encoded."""

import codecs
import re

_CP1252_UNDEFINED = b"\x81\x8d\x8f\x90\x9d"
_UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SAMPLE_BYTES = 8192
_MIN_UTF16_PAIRS = 4
_MIN_HIRAGANA = 2
_HIRAGANA = re.compile(rb"\x82[\x9f-\xf1]")
_META_CHARSET = re.compile(rb"<meta\b[^>]{0,300}?\bcharset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_META_BYTES = 2048
# Families of names that pages declare; Python knows codecs of quite other uses.
_CHARSET = re.compile(
    r"iso-8859-\d+|windows-\d+|koi8-[ru]|(?:x-)?s(?:hift[_-])?jis|euc-(?:jp|kr)|gb(?:k|2312|18030)|big5|macintosh"
)
# What the web means by these names.
_SUPERSETS = {"iso-8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "euc-kr": "cp949"}


def encoding_of(data: bytes) -> str:
    """The codec of a text: UTF-16, UTF-8, Shift-JIS (cp932), else Windows-1252 or, where that has no such byte,
    Latin-1. A text without a byte order mark is judged by its first 8 KiB, but for UTF-8, which must hold
    throughout."""
    if data.startswith(_UTF16_BOMS):
        return "utf-16"
    sample = data[:_SAMPLE_BYTES]
    if codec := _bare_utf16(sample):
        return codec
    try:
        data.decode("utf-8-sig")
    except UnicodeDecodeError:
        if _is_shift_jis(sample):
            return "cp932"
        return "latin-1" if any(byte in data for byte in _CP1252_UNDEFINED) else "cp1252"
    return "utf-8-sig"


def decode_text(data: bytes) -> str:
    """Text of a byte string in the encoding that `encoding_of` finds. Never fails."""
    return data.decode(encoding_of(data), "replace")


def decode_html(data: bytes) -> str:
    """Like `decode_text`, but what is not Unicode is in the encoding that the page declares."""
    declared = declared_charset(data)
    if declared is None or encoding_of(data).startswith("utf"):
        return decode_text(data)
    return data.decode(declared, "replace")


def declared_charset(data: bytes) -> str | None:
    """The codec of a page's `<meta charset>`, unless it is unknown or says Unicode."""
    if (match := _META_CHARSET.search(data[:_META_BYTES])) is None:
        return None
    name = match[1].decode("ascii", "replace").lower()
    if _CHARSET.fullmatch(name) is None:
        return None
    try:
        codec = codecs.lookup("cp932" if "jis" in name else _SUPERSETS.get(name, name)).name
    except LookupError:
        return None
    return codec


def _bare_utf16(sample: bytes) -> str | None:
    """UTF-16 of a text that is mostly Latin has zeros at every other place, and next to none between."""
    pairs = len(sample) // 2
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if pairs < _MIN_UTF16_PAIRS or max(even, odd) * 2 < pairs or min(even, odd) * 20 > max(even, odd):
        return None
    return "utf-16-le" if odd > even else "utf-16-be"


def _is_shift_jis(sample: bytes) -> bool:
    """Japanese has hiragana, which begin with a byte that Latin texts hardly use; the rest must hold too."""
    if len(_HIRAGANA.findall(sample)) < _MIN_HIRAGANA:
        return False
    try:
        codecs.getincrementaldecoder("cp932")().decode(sample)
    except UnicodeDecodeError:
        return False
    return True
