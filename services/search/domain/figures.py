"""Figures that a text gives: numbers with what they count or measure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_UP_TO_TWENTY: Final = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    " seventeen eighteen nineteen twenty"
)
_TENS: Final = {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
_IN_WORDS: Final = {word: value for value, word in enumerate(_UP_TO_TWENTY.split(), start=1)} | _TENS
_SECONDS: Final = {
    "second": 1,
    "minute": 60,
    "hour": 3_600,
    "day": 86_400,
    "week": 7 * 86_400,
    "month": 365.25 / 12 * 86_400,
    "year": 365.25 * 86_400,
}
_CURRENCIES: Final = {
    name: currency
    for currency, names in {"eur": "€ euro eur", "usd": "$ dollar usd", "gbp": "£ gbp"}.items()
    for name in names.split()
}
_LARGE: Final = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "k": 1e3, "m": 1e6, "bn": 1e9}

MAX_VALUES: Final = 4
_BEFORE: Final = 40
"""Characters before a number that tell what it is."""

_NUMBER: Final = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_NUMBER_WORD: Final = "|".join(_IN_WORDS)
# Nothing that is part of a name, a date, a time of day, a version or a range.
_FIGURE: Final = re.compile(
    rf"""(?<![\w.,:/\#§&+–-]) (?P<sign>[€$£]\ ?)? (?P<number>{_NUMBER}|(?:{_NUMBER_WORD})\b)
    (?:\ ?(?P<large>k|m|bn)\b|\ (?P<scale>thousand|million|billion)\b)?
    (?![\w/:–-]|[.,]\d)
    (?:[ ]?(?P<symbol>[%€$£])|\s(?P<unit>percent|per\ cent|euros?|eur|usd|gbp|dollars?)\b
      |\s(?:(?:working|business|calendar)\s)?(?P<time>second|minute|hour|day|week|month|year)s?\b
      |\s(?P<thing>[a-z]{{3,}}(?:\s[a-z]{{3,}})?))?""",
    re.VERBOSE,
)
_RANGE: Final = re.compile(rf"(?:{_NUMBER}|{_NUMBER_WORD})\s(?:\w+\s)?(?:and|to|or)\s[€$£]?$")
_COUNTED_OFF: Final = re.compile(
    r"(?:^|\n)\s*$|\b(?:page|section|chapter|figure|table|step|version|release|number|no\.?|nr\.?|line|item|question"
    r"|day|week|extension|january|february|march|april|may|june|july|august|september|october|november|december)\s$"
)
_SENTENCE: Final = re.compile(r"(?<=[.!?;])\s+(?=\W?[A-Z0-9`])|\n\s*\n|\n(?=#)")
_YEAR: Final = re.compile(r"\b(?:19|20)\d\d\b")
_WORD: Final = re.compile(r"[^\W\d_]{3,}")
_COMMON: Final = frozenset(
    "about above after again all also and any are aspire because been before below between but can did does each"  # noqa: SIM905
    " even every first for from get had has have her here his how into its last least less many may median more"
    " most much must nor not now off once one only other our out over per same shall should since some such than"
    " that the their them then there these they this those three through two under until upon very want was were"
    " what when where which while who whom whose why will with within without would you your"
    # The units, which are in the kind.
    " second seconds minute minutes hour hours day days week weeks month months year years working business"
    " calendar percent euro euros eur dollar dollars usd gbp".split()
)


@dataclass(frozen=True, slots=True)
class Statement:
    """The figures of one kind in one sentence: what they count or measure, in seconds where that is time. `words`
    of the sentence as stems, `years` that it names."""

    kind: str
    values: tuple[float, ...]
    words: frozenset[str]
    years: frozenset[str]


def statements_of(text: str) -> Iterator[Statement]:
    """Left out are dates, times of day, versions, ranges, numbers of pages and lists, parts of names, and
    sentences with more than MAX_VALUES of a kind, which are tables."""
    for sentence in map(str.casefold, _SENTENCE.split(text)):
        values: dict[str, list[float]] = {}
        for found in _FIGURE.finditer(sentence):
            before = sentence[max(0, found.start() - _BEFORE) : found.start()]
            if (kinds := _kinds(found)) and not _COUNTED_OFF.search(before) and not _RANGE.search(before):
                for kind in kinds:
                    values.setdefault(kind, []).append(_value(found))
        if values:
            words, years = stems(sentence), frozenset(_YEAR.findall(sentence))
            for kind, those in values.items():
                if len(those) <= MAX_VALUES:
                    yield Statement(kind, tuple(those), words, years)


def stems(text: str) -> frozenset[str]:
    """Words that mean something, each by its first six letters: enough for English inflection."""
    return frozenset(word[:6] for word in _WORD.findall(text.casefold()) if word not in _COMMON)


def _kinds(found: re.Match[str]) -> frozenset[str]:
    measured = (found["symbol"] or found["sign"] or found["unit"] or "").strip()
    if measured in ("%", "percent", "per cent"):
        return frozenset({"%"})
    if measured:
        return frozenset({_CURRENCIES[measured.rstrip("s")]})
    if found["time"]:
        return frozenset({"time"})
    if found["number"] in _IN_WORDS:
        return frozenset()  # "one of them", "two or three things"
    if found["thing"]:
        return frozenset({f"of {stem}" for stem in stems(found["thing"])})
    return frozenset() if _YEAR.fullmatch(found["number"]) else frozenset({"plain"})


def _value(found: re.Match[str]) -> float:
    number = found["number"]
    value = _IN_WORDS.get(number) or float(number.replace(",", ""))
    scale = _LARGE[(found["large"] or found["scale"])] if found["large"] or found["scale"] else 1
    return value * scale * (_SECONDS[found["time"]] if found["time"] else 1)
