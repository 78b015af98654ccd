"""Provenance: how far each kind of source is trusted, and how that is printed on a passage.

The table of kinds is the contract between the writers of chunks (who store the tier) and search (which
ranks and labels by it).
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from kbmesh.errors import InvalidArgument

FRESH: Final = 1.0
STALE: Final = 0.85

DOCUMENT_CHUNK: Final = "document_chunk"
SKILL_VERSION: Final = "skill_version"


class Tier(StrEnum):
    CUSTOMER_FACT = "CustomerFact"
    PLATFORM_BEST_PRACTICE = "PlatformBestPractice"
    INDUSTRY_BENCHMARK = "IndustryBenchmark"
    ADVISORY_GUIDANCE = "AdvisoryGuidance"

    @property
    def weight(self) -> float:
        """Factor on relevance, in (0, 1]."""
        return _WEIGHTS[self]


_WEIGHTS: Final = {
    Tier.CUSTOMER_FACT: 1.0,
    Tier.PLATFORM_BEST_PRACTICE: 0.85,
    Tier.INDUSTRY_BENCHMARK: 0.7,
    Tier.ADVISORY_GUIDANCE: 0.55,
}


class Category(StrEnum):
    """What an uploaded document is."""

    STRATEGY = "strategy"
    DATA_DICTIONARY = "data_dictionary"
    GOVERNANCE_POLICY = "governance_policy"
    ARCHITECTURE = "architecture"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Kind:
    tier: Tier
    label: str


_FACT, _PRACTICE = Tier.CUSTOMER_FACT, Tier.PLATFORM_BEST_PRACTICE
_BENCHMARK, _ADVICE = Tier.INDUSTRY_BENCHMARK, Tier.ADVISORY_GUIDANCE

KINDS: Final[dict[str, Kind]] = {
    DOCUMENT_CHUNK: Kind(_FACT, "UPLOADED DOCUMENT"),
    "table_detail": Kind(_FACT, "PLATFORM DATA"),
    "column_profile": Kind(_FACT, "PLATFORM DATA"),
    "table_health": Kind(_FACT, "PLATFORM DATA"),
    "lineage_context": Kind(_FACT, "PLATFORM DATA"),
    "fabric_dataset": Kind(_FACT, "PLATFORM DATA"),
    "fabric_measure": Kind(_FACT, "PLATFORM DATA"),
    "fabric_report": Kind(_FACT, "PLATFORM DATA"),
    "fabric_artifact": Kind(_FACT, "PLATFORM DATA"),
    "environment_insight": Kind(_PRACTICE, "PLATFORM INSIGHT"),
    "data_product": Kind(_PRACTICE, "PLATFORM INSIGHT"),
    "use_case": Kind(_PRACTICE, "GENERATED INTELLIGENCE"),
    "business_context": Kind(_PRACTICE, "GENERATED INTELLIGENCE"),
    "genie_recommendation": Kind(_PRACTICE, "GENERATED INTELLIGENCE"),
    "genie_question": Kind(_PRACTICE, "GENERATED INTELLIGENCE"),
    "skill_chunk": Kind(_PRACTICE, "PLATFORM SKILL"),
    SKILL_VERSION: Kind(_PRACTICE, "LEARNED SKILL"),
    "industry_benchmark": Kind(_BENCHMARK, "INDUSTRY BENCHMARK"),
    "benchmark_context": Kind(_BENCHMARK, "INDUSTRY BENCHMARK"),
    "industry_kpi": Kind(_ADVICE, "INDUSTRY KPI"),
    "outcome_map": Kind(_ADVICE, "INDUSTRY TEMPLATE"),
    "industry_data_asset": Kind(_ADVICE, "INDUSTRY DATA ASSET"),
}

SCOPES: Final[dict[str, frozenset[str]]] = {
    "documents": frozenset({DOCUMENT_CHUNK}),
    "skills": frozenset({"skill_chunk", "industry_kpi", "industry_benchmark", "industry_data_asset"}),
    "estate": frozenset(
        {
            "table_detail",
            "column_profile",
            "environment_insight",
            "table_health",
            "data_product",
            "lineage_context",
        }
    ),
    "insights": frozenset({"environment_insight", "table_health", "data_product"}),
    "usecases": frozenset({"use_case", "business_context", "genie_recommendation", "genie_question"}),
    "benchmarks": frozenset({"benchmark_context", "outcome_map", "industry_benchmark"}),
    "fabric": frozenset({"fabric_dataset", "fabric_measure", "fabric_report", "fabric_artifact"}),
}
"""Sets of kinds that are asked for by one name; a kind may be in several, and `skill_version` is in none."""


def default_tier(kind: str, category: Category | None = None) -> Tier:
    """Tier of a source that states no priority of its own.

    Raises:
        InvalidArgument: the kind is not one of KINDS.
    """
    if kind == DOCUMENT_CHUNK and category is Category.STRATEGY:
        return Tier.ADVISORY_GUIDANCE  # what the company aspires to, not what is
    try:
        return KINDS[kind].tier
    except KeyError:
        raise InvalidArgument(f"unknown kind {kind[:64]!r}", code="unknown_kind") from None


def label_of(kind: str, name: str = "", version: int | None = None) -> str:
    """Label of a passage: `name` is the file of a document or the learned skill, whose `version` it is; other
    kinds are not named. Brackets in the name cannot close the label early.

    Raises:
        KeyError: the kind is not one of KINDS.
    """
    label = KINDS[kind].label
    name = name.translate(NO_BRACKETS)
    if kind == DOCUMENT_CHUNK:
        return f"[{label}: {name}]"
    if kind == SKILL_VERSION and name:
        return f"[{label}: {name}]" if version is None else f"[{label}: {name} v{version}]"
    return f"[{label}]"


def document_label(filename: str) -> str:
    return label_of(DOCUMENT_CHUNK, filename)


NO_BRACKETS: Final = str.maketrans("[]", "()") | dict.fromkeys(
    map(ord, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " "
)
"""For `str.translate`: a name or title then stays on its line and looks like no label."""


def freshness(valid_until: datetime | None, now: datetime) -> float:
    """Factor on relevance: 1, or 0.85 once `valid_until` has passed."""
    return STALE if valid_until is not None and valid_until < now else FRESH
