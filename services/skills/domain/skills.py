from dataclasses import dataclass
from enum import StrEnum


class ChunkCategory(StrEnum):
    """What a chunk is good for in a prompt."""

    RULES = "rules"
    PATTERNS = "patterns"
    ANTI_PATTERNS = "anti-patterns"
    EXAMPLES = "examples"
    VOCABULARY = "vocabulary"
    KPIS = "kpis"


class Intent(StrEnum):
    """What the person who asks is after."""

    BUSINESS = "business"
    TECHNICAL = "technical"
    DASHBOARD = "dashboard"
    NAVIGATION = "navigation"
    EXPLORATION = "exploration"
    STRATEGIC = "strategic"


class GeniePass(StrEnum):
    """A pass of the generator of Genie spaces."""

    INSTRUCTIONS = "instructions"
    SEMANTIC_EXPRESSIONS = "semanticExpressions"
    BENCHMARKS = "benchmarks"
    TRUSTED_ASSETS = "trustedAssets"
    METRIC_VIEWS = "metricViews"
    COLUMN_INTELLIGENCE = "columnIntelligence"
    EXAMPLE_QUERIES = "exampleQueries"
    JOIN_INFERENCE = "joinInference"


class PipelineStep(StrEnum):
    """A step of the use case pipeline."""

    SQL_GENERATION = "sql-generation"
    SCORING = "scoring"
    USE_CASE_GENERATION = "use-case-generation"
    TABLE_FILTERING = "table-filtering"
    DASHBOARD_DESIGN = "dashboard-design"


Target = Intent | GeniePass | PipelineStep


@dataclass(frozen=True, slots=True)
class Relevance:
    """Where a skill is put to use: every target that it names, at least one in all."""

    intents: tuple[Intent, ...] = ()
    genie_passes: tuple[GeniePass, ...] = ()
    pipeline_steps: tuple[PipelineStep, ...] = ()

    def names(self, target: Target) -> bool:
        match target:
            case Intent():
                return target in self.intents
            case GeniePass():
                return target in self.genie_passes
            case PipelineStep():
                return target in self.pipeline_steps


@dataclass(frozen=True, slots=True)
class SkillChunk:
    """One piece of a skill that can be used by itself.

    `id` is unique within the skill; `max_char_budget` is the longest form that may be used, in characters.
    """

    id: str
    title: str
    content: str
    category: ChunkCategory
    max_char_budget: int | None = None


@dataclass(frozen=True, slots=True)
class Skill:
    id: str
    name: str
    description: str
    relevance: Relevance
    chunks: tuple[SkillChunk, ...]


@dataclass(frozen=True, slots=True)
class ChunkId:
    """`chunk` is unique within the skill."""

    skill: str
    chunk: str


@dataclass(frozen=True, slots=True)
class ListedChunk:
    """A chunk, told apart from those of other skills."""

    id: ChunkId
    chunk: SkillChunk
