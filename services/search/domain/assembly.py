"""What may be asked of the assembly of a context, and what its strategies bring."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Final
from uuid import UUID

from kbmesh.errors import InvalidArgument
from kbmesh.provenance import KINDS, NO_BRACKETS, SCOPES, freshness, label_of
from services.search.domain.context import MAX_MAX_CHARS, ContextPassage
from services.search.domain.formatting import head_of
from services.search.domain.intents import Look, plan_of
from services.search.domain.query import parse_query
from services.search.domain.ranking import Score

MIN_TOTAL_CHARS: Final = 4_000
DEFAULT_TOTAL_CHARS: Final = 24_000
"""Some 6,000 tokens: beside a question and an answer they fit into the 8,000 of small models."""
MAX_PERSONA_CHARS: Final = 100

SKILL_CHUNK: Final = "skill_chunk"


class Strategy(IntEnum):
    """In the order in which they get room, and stand in the text."""

    DIRECT = 1
    SKILLS = 2
    RETRIEVAL = 3


@dataclass(frozen=True, slots=True)
class Section:
    strategy: Strategy
    name: str
    title: str


@dataclass(frozen=True, slots=True)
class Direct:
    """Records of `kinds` that go in whatever the question, the `limit` newest."""

    section: Section
    kinds: tuple[str, ...]
    limit: int


ESTATE: Final = "estate_summary"
ESTATE_KINDS: Final = SCOPES["estate"] | SCOPES["fabric"]
"""Counted in the heading of the estate."""
DIRECT: Final = (
    Direct(Section(Strategy.DIRECT, "business_context", "Business context"), ("business_context",), 5),
    Direct(Section(Strategy.DIRECT, ESTATE, "Estate"), ("environment_insight", "table_health"), 6),
    Direct(
        Section(Strategy.DIRECT, "deployed_assets", "Deployed assets"),
        ("data_product", "fabric_report", "fabric_dataset", "fabric_measure", "fabric_artifact"),
        10,
    ),
    Direct(
        Section(Strategy.DIRECT, "industry_context", "Industry"),
        ("outcome_map", "industry_kpi", "industry_benchmark"),
        6,
    ),
)

GUIDANCE: Final = Section(Strategy.SKILLS, "skill_guidance", "Skills")
OVERLAY: Final = Section(Strategy.SKILLS, "system_overlay", "")
EITHER: Final = Section(Strategy.SKILLS, "", "")
"""The skills service does not say where what it left out would have gone."""


def scope_section(scope: str) -> Section:
    return Section(Strategy.RETRIEVAL, scope, f"Found for the question: {scope}")


def estate_title(section: Section, counts: Mapping[str, int]) -> str:
    held = ", ".join(f"{kind} {counts[kind]}" for kind in sorted(counts))
    return f"{section.title} (records: {held})" if held else section.title


@dataclass(frozen=True, slots=True)
class Item:
    """One passage, as a strategy brings it. Without a `chunk_id` it is all of its source. `cut`: its text ends
    before the source does."""

    section: Section
    kind: str
    source_id: str
    title: str
    label: str
    head: str
    content: str
    chunk_id: UUID | None = None
    score: float | None = None
    cut: bool = False


@dataclass(frozen=True, slots=True)
class SkillPart:
    """Of a skill, in the name of the skills service; without content in the overlay, and if left out."""

    skill_id: str
    chunk_id: str
    title: str = ""
    content: str = ""
    shortened: bool = False


@dataclass(frozen=True, slots=True)
class ResolvedSkills:
    """What the skills service says for an intent: `overlay` is one text, of `overlay_parts`."""

    overlay: str = ""
    overlay_parts: tuple[SkillPart, ...] = ()
    sections: tuple[SkillPart, ...] = ()
    left_out: tuple[SkillPart, ...] = ()


def of_record(section: Section, passage: ContextPassage, valid_until: datetime | None, now: datetime) -> Item:
    return _of_passage(section, passage, freshness(valid_until, now), None)


def of_passage(section: Section, passage: ContextPassage, score: Score) -> Item:
    return _of_passage(section, passage, score.freshness, score.value)


def _of_passage(section: Section, passage: ContextPassage, fresh: float, score: float | None) -> Item:
    return Item(
        section,
        passage.kind,
        passage.source_id,
        passage.title,
        passage.label,
        head_of(passage, fresh),
        passage.content,
        passage.chunk_id,
        score,
    )


def of_skill(section: Section, part: SkillPart) -> Item:
    """Under the id that the same text has where search knows it as a record."""
    label = label_of(SKILL_CHUNK)
    return Item(
        section,
        SKILL_CHUNK,
        f"{part.skill_id}/{part.chunk_id}",
        part.title,
        label,
        f"{label} {KINDS[SKILL_CHUNK].tier}: {part.title.translate(NO_BRACKETS)}",
        part.content,
        cut=part.shortened,
    )


@dataclass(frozen=True, slots=True)
class Budgets:
    """In code points; `total` is of everything."""

    total: int
    overlay: int
    of: Mapping[Strategy, int]


@dataclass(frozen=True, slots=True)
class AssemblyQuery:
    """A request that was checked."""

    text: str
    intent: str
    plan: tuple[Look, ...]
    budgets: Budgets
    persona: str | None = None
    channel_id: str | None = None


def parse_assembly_query(
    text: str,
    intent: str,
    *,
    persona: str | None = None,
    channel_id: str = "",
    max_chars: int | None = None,
    max_overlay_chars: int | None = None,
    max_direct_chars: int | None = None,
    max_skills_chars: int | None = None,
    max_retrieval_chars: int | None = None,
) -> AssemblyQuery:
    """
    Raises:
        InvalidArgument: as `parse_query`; unknown_intent, invalid_persona or budget_out_of_range.
    """
    query = parse_query(text, channel_id=channel_id)
    plan = plan_of(intent)
    if persona is not None:
        persona = persona.strip()
        if len(persona) > MAX_PERSONA_CHARS or not persona.isprintable():
            raise InvalidArgument(
                f"the persona has at most {MAX_PERSONA_CHARS} characters, on one line", code="invalid_persona"
            )
    total = _budget("max_chars", max_chars, DEFAULT_TOTAL_CHARS, at_least=MIN_TOTAL_CHARS)
    budgets = Budgets(
        total,
        _budget("max_overlay_chars", max_overlay_chars, total // 8),
        {
            Strategy.DIRECT: _budget("max_direct_chars", max_direct_chars, total // 4),
            Strategy.SKILLS: _budget("max_skills_chars", max_skills_chars, total // 8),
            Strategy.RETRIEVAL: _budget("max_retrieval_chars", max_retrieval_chars, total),
        },
    )
    return AssemblyQuery(query.text, intent, plan, budgets, persona or None, query.channel_id)


def _budget(name: str, given: int | None, default: int, *, at_least: int = 0) -> int:
    if given is None:
        return default
    if not at_least <= given <= MAX_MAX_CHARS:
        raise InvalidArgument(f"{name} is {at_least} to {MAX_MAX_CHARS}, not {given}", code="budget_out_of_range")
    return given
