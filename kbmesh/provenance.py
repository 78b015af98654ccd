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
    "skill_version": Kind(_PRACTICE, "LEARNED SKILL"),
    "industry_benchmark": Kind(_BENCHMARK, "INDUSTRY BENCHMARK"),
    "benchmark_context": Kind(_BENCHMARK, "INDUSTRY BENCHMARK"),
    "industry_kpi": Kind(_ADVICE, "INDUSTRY KPI"),
    "outcome_map": Kind(_ADVICE, "INDUSTRY TEMPLATE"),
    "industry_data_asset": Kind(_ADVICE, "INDUSTRY DATA ASSET"),
}


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


def document_label(filename: str) -> str:
    """Label of a passage of an uploaded document; brackets in the name cannot close it early."""
    return f"[{KINDS[DOCUMENT_CHUNK].label}: {filename.translate(_NO_BRACKETS)}]"


_NO_BRACKETS: Final = str.maketrans("[]\n\r", "()  ")


def freshness(valid_until: datetime | None, now: datetime) -> float:
    """Factor on relevance: 1, or 0.85 once `valid_until` has passed."""
    return STALE if valid_until is not None and valid_until < now else FRESH
