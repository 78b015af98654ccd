"""How to write Databricks SQL that is right and fast.

Reference for every function used there: https://docs.databricks.com/en/sql/language-manual/
"""

from typing import Final

from services.skills.content._texts import texts_of
from services.skills.domain.registry import register_skill
from services.skills.domain.skills import (
    ChunkCategory,
    GeniePass,
    Intent,
    PipelineStep,
    Relevance,
    Skill,
)

_chunk = texts_of(__file__)

SKILL: Final = Skill(
    id="databricks-sql-patterns",
    name="Databricks SQL patterns",
    description=(
        "Window functions, common table expressions, dates, arrays and lambdas in Databricks SQL, with the "
        "mistakes that give wrong numbers or slow queries. For whatever writes or reviews SQL on a lakehouse."
    ),
    relevance=Relevance(
        intents=(Intent.TECHNICAL, Intent.DASHBOARD, Intent.EXPLORATION),
        genie_passes=(
            GeniePass.INSTRUCTIONS,
            GeniePass.SEMANTIC_EXPRESSIONS,
            GeniePass.EXAMPLE_QUERIES,
            GeniePass.JOIN_INFERENCE,
        ),
        pipeline_steps=(PipelineStep.SQL_GENERATION, PipelineStep.DASHBOARD_DESIGN),
    ),
    chunks=(
        # What comes first has room in more prompts: what gives wrong numbers before what is slow.
        _chunk("named-steps", "Build a query from named steps", ChunkCategory.PATTERNS),
        _chunk("latest-row-per-key", "Keep the latest row per key", ChunkCategory.PATTERNS),
        _chunk("join-fan-out", "Joins that multiply amounts", ChunkCategory.ANTI_PATTERNS),
        _chunk("nulls-and-safe-types", "Expect NULLs, bad text and zero divisors", ChunkCategory.RULES),
        _chunk("dates-and-time-zones", "Handle dates, ranges and time zones", ChunkCategory.RULES),
        _chunk("window-frames", "State the frame of a window function", ChunkCategory.RULES),
        _chunk("explode-safely", "Explode arrays without losing or multiplying rows", ChunkCategory.RULES),
        _chunk("slow-queries", "What makes a query slow for nothing", ChunkCategory.ANTI_PATTERNS),
        _chunk("conditional-aggregates", "Put several measures into one pass", ChunkCategory.PATTERNS),
        _chunk("sessions", "Group events into sessions (gaps and islands)", ChunkCategory.EXAMPLES),
        _chunk("calendar-spine", "Fill missing days with a calendar", ChunkCategory.EXAMPLES),
        _chunk("higher-order-functions", "Work on arrays with lambda functions", ChunkCategory.PATTERNS),
    ),
)

register_skill(SKILL)
