"""What the chunks of a target say, in as many characters as a prompt has room for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kbmesh.errors import InvalidArgument
from services.skills.domain.shortening import Shortened, shorten
from services.skills.domain.skills import ChunkCategory, ChunkId, GeniePass, ListedChunk, SkillChunk, Target

MAX_BUDGET: Final = 100_000
MIN_SHARE: Final = 200
"""Characters of the overlay that a chunk may take before the next gets its turn: a title and a rule or two."""

OVERLAY: Final = frozenset({ChunkCategory.RULES, ChunkCategory.ANTI_PATTERNS})
_BETWEEN: Final = "\n\n"


@dataclass(frozen=True, slots=True)
class Budgets:
    """In code points, 0 to 100,000.

    Raises:
        InvalidArgument: budget_out_of_range.
    """

    overlay: int
    context: int

    def __post_init__(self) -> None:
        for name, budget in (("overlay", self.overlay), ("context", self.context)):
            if not 0 <= budget <= MAX_BUDGET:
                raise InvalidArgument(
                    f"the budget of the {name} is 0 to {MAX_BUDGET} characters, not {budget}",
                    code="budget_out_of_range",
                )


def default_budgets(target: Target) -> Budgets:
    if not isinstance(target, GeniePass):
        return Budgets(overlay=1200, context=4000)
    return Budgets(overlay=800 if target is GeniePass.INSTRUCTIONS else 600, context=2000)


@dataclass(frozen=True, slots=True)
class ResolvedChunk:
    """`content` ends before the chunk does where it is `shortened`."""

    id: ChunkId
    title: str
    category: ChunkCategory
    content: str
    shortened: bool


@dataclass(frozen=True, slots=True)
class Resolved:
    """Rules and anti-patterns as one text, and the chunks in it; the others as sections; what found no room."""

    system_overlay: str
    overlay_chunks: tuple[ResolvedChunk, ...]
    context_sections: tuple[ResolvedChunk, ...]
    left_out: tuple[ChunkId, ...]
    by_relevance: bool

    @property
    def context_chars(self) -> int:
        return sum(len(section.title) + len(section.content) for section in self.context_sections)


def resolve(
    chunks: Sequence[ListedChunk], budgets: Budgets, nearness: Mapping[ChunkId, float] | None = None
) -> Resolved:
    """What `budgets` have room for.

    Args:
        nearness: of each chunk to a question, the nearest coming first; without it skills take turns, in the order
            of `chunks`, each with its own chunks in their order.
    """
    for_overlay = _ordered([one for one in chunks if one.chunk.category in OVERLAY], nearness)
    for_context = _ordered([one for one in chunks if one.chunk.category not in OVERLAY], nearness)
    overlay = _resolved(for_overlay, _overlay(for_overlay, budgets.overlay, by_relevance=nearness is not None))
    sections = _resolved(for_context, _sections(for_context, budgets.context))
    taken = {one.id for one in (*overlay, *sections)}
    return Resolved(
        system_overlay=_BETWEEN.join(_heading(one) + one.content for one in overlay),
        overlay_chunks=overlay,
        context_sections=sections,
        left_out=tuple(listed.id for listed in (*for_overlay, *for_context) if listed.id not in taken),
        by_relevance=nearness is not None,
    )


def _ordered(chunks: Sequence[ListedChunk], nearness: Mapping[ChunkId, float] | None) -> list[ListedChunk]:
    if nearness is not None:
        return sorted(chunks, key=lambda listed: -nearness[listed.id])
    turns: Counter[str] = Counter()
    taken = []
    for listed in chunks:
        taken.append((turns[listed.id.skill], listed))
        turns[listed.id.skill] += 1
    return [listed for _, listed in sorted(taken, key=lambda one: one[0])]


def _overlay(chunks: Sequence[ListedChunk], budget: int, *, by_relevance: bool) -> dict[ChunkId, Shortened]:
    """First a share for each, so that the rules of many come before all that one has to say: half of what is left
    for the nearest, then for the next; equal ones without a question. Then what remains, to the first in order."""
    texts: dict[ChunkId, Shortened] = {}
    room = budget + len(_BETWEEN)
    for position, listed in enumerate(chunks):
        share = room // (2 if by_relevance else len(chunks) - position)
        text = _fitting(listed.chunk, min(room, max(share, MIN_SHARE)))
        if text is not None:
            texts[listed.id] = text
            room -= _length(listed.chunk, text)
    for listed in chunks:
        before = _length(listed.chunk, texts[listed.id]) if listed.id in texts else 0
        text = _fitting(listed.chunk, room + before)
        if text is not None:
            texts[listed.id] = text
            room -= _length(listed.chunk, text) - before
    return texts


def _fitting(chunk: SkillChunk, room: int) -> Shortened | None:
    # Rules say more by the character than the code that shows them.
    return shorten(chunk.content, _limit(chunk, room - len(_heading(chunk)) - len(_BETWEEN)), keep_code=False)


def _length(chunk: SkillChunk, text: Shortened) -> int:
    return len(_heading(chunk)) + len(text.text) + len(_BETWEEN)


def _heading(chunk: SkillChunk | ResolvedChunk) -> str:
    avoid = "Avoid: " if chunk.category is ChunkCategory.ANTI_PATTERNS else ""
    return f"## {avoid}{chunk.title}\n"


def _sections(chunks: Sequence[ListedChunk], budget: int) -> dict[ChunkId, Shortened]:
    texts: dict[ChunkId, Shortened] = {}
    room = budget
    for listed in chunks:
        text = shorten(listed.chunk.content, _limit(listed.chunk, room - len(listed.chunk.title)))
        if text is not None:
            texts[listed.id] = text
            room -= len(listed.chunk.title) + len(text.text)
    return texts


def _limit(chunk: SkillChunk, room: int) -> int:
    return room if chunk.max_char_budget is None else min(room, chunk.max_char_budget)


def _resolved(chunks: Sequence[ListedChunk], texts: Mapping[ChunkId, Shortened]) -> tuple[ResolvedChunk, ...]:
    return tuple(
        ResolvedChunk(listed.id, listed.chunk.title, listed.chunk.category, text.text, text.shortened)
        for listed in chunks
        if (text := texts.get(listed.id)) is not None
    )
