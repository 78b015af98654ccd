"""What the strategies bring, put into one text within budgets, with an account of every passage."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from services.search.domain.assembly import (
    EITHER,
    GUIDANCE,
    OVERLAY,
    AssemblyQuery,
    Item,
    ResolvedSkills,
    Section,
    Strategy,
    of_skill,
)
from services.search.domain.formatting import LEGEND, format_entry

FRAME: Final = f"What may matter to the question, in sections. {LEGEND}"
CHARS_PER_TOKEN: Final = 4
"""Of English, as tokenizers of language models cut it; a rule of thumb."""

Brought = Sequence[tuple[Section, Sequence[Item]]]


class Outcome(IntEnum):
    INCLUDED = 1
    SHORTENED = 2
    DUPLICATE = 3
    OVER_BUDGET = 4


@dataclass(frozen=True, slots=True)
class Entry:
    """`characters` of the text, blank line and label counted; None: within the overlay."""

    item: Item
    outcome: Outcome
    characters: int | None


@dataclass(frozen=True, slots=True)
class Packed:
    """`text` is the frame and the sections, of which `framing` code points are of no entry. `overlay` is apart."""

    overlay: str
    text: str
    sections: tuple[tuple[Section, str], ...]
    entries: tuple[Entry, ...]
    framing: int


def tokens_of(characters: int) -> int:
    """An estimate."""
    return math.ceil(characters / CHARS_PER_TOKEN)


def pack(query: AssemblyQuery, brought: Brought, skills: ResolvedSkills) -> Packed:
    """What fits, of `brought` in the order of the text, and of `skills`: overlay and text together are no longer
    than the budget.

    Within a strategy the sections take turns, each with its next best, so that none is crowded out by those ahead
    of it. One passage of a strategy is cut at the end of a sentence where the room ends; others stay whole.
    """
    parts = [of_skill(OVERLAY, part) for part in skills.overlay_parts]
    fits = len(skills.overlay) <= query.budgets.overlay
    overlay = skills.overlay if fits else ""
    entries = [
        Entry(part, Outcome.INCLUDED, None) if fits else Entry(part, Outcome.OVER_BUDGET, 0) for part in parts
    ]
    seen: set[object] = {_source(part) for part in parts if fits}
    brought = [*brought, (GUIDANCE, [of_skill(GUIDANCE, part) for part in skills.sections])]
    frame = FRAME if query.persona is None else f"{FRAME}\n\nThe question is asked by: {query.persona}"
    left = query.budgets.total - len(overlay) - len(frame)
    sections: list[tuple[Section, str]] = []
    for strategy in Strategy:
        own = [(section, items) for section, items in brought if section.strategy is strategy]
        texts, accounts = _turns(own, min(left, query.budgets.of[strategy]), seen)
        for section, _ in own:
            if text := texts.get(section):
                sections.append((section, text))
                left -= len(text)
            entries += accounts[section]
    entries += [Entry(of_skill(EITHER, part), Outcome.OVER_BUDGET, 0) for part in skills.left_out]
    text = frame + "".join(text for _, text in sections) if sections else ""
    return Packed(
        overlay,
        text,
        tuple((section, text.removeprefix("\n\n")) for section, text in sections),
        tuple(entries),
        len(text) - sum(entry.characters or 0 for entry in entries),
    )


def _turns(
    brought: Brought, room: int, seen: set[object]
) -> tuple[Mapping[Section, str], Mapping[Section, list[Entry]]]:
    """Texts of the sections that have any, blank line and heading first, and an entry for each item."""
    texts: dict[Section, str] = {}
    accounts: dict[Section, list[Entry]] = {section: [] for section, _ in brought}
    may_cut = True
    for turn in range(max((len(items) for _, items in brought), default=0)):
        for section, items in brought:
            if turn >= len(items):
                continue
            item = items[turn]
            if item.chunk_id in seen or _source(item) in seen:
                accounts[section].append(Entry(item, Outcome.DUPLICATE, 0))
                continue
            heading = "" if section in texts else f"\n\n## {section.title}"
            text, cut = format_entry(item.head, item.content, room - len(heading), may_cut=may_cut)
            if not text:
                accounts[section].append(Entry(item, Outcome.OVER_BUDGET, 0))
                continue
            may_cut = may_cut and not cut
            seen.add(item.chunk_id or _source(item))
            texts[section] = texts.get(section, heading) + text
            room -= len(heading) + len(text)
            outcome = Outcome.SHORTENED if cut or item.cut else Outcome.INCLUDED
            accounts[section].append(Entry(item, outcome, len(text)))
    return texts, accounts


def _source(item: Item) -> tuple[str, str]:
    return item.kind, item.source_id
