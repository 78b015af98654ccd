from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from kbmesh.errors import InvalidArgument
from services.skills.domain.resolver import Budgets, Resolved, default_budgets, resolve
from services.skills.domain.skills import GeniePass, Intent, PipelineStep, Target
from services.skills.ports import SkillCatalog

MAX_QUESTION_LENGTH: Final = 4_000

T = TypeVar("T", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Ask:
    """What a caller adds to the target: a question, if it is not blank, and budgets in place of the target's."""

    question: str = ""
    overlay: int | None = None
    context: int | None = None

    def __post_init__(self) -> None:
        if len(self.question) > MAX_QUESTION_LENGTH:
            raise InvalidArgument(
                f"the question has {len(self.question)} characters, at most {MAX_QUESTION_LENGTH} are read",
                code="question_too_long",
            )


async def resolve_for_intent(intent: str, ask: Ask, *, catalog: SkillCatalog) -> Resolved:
    """What the skills for `intent` say, the chunks nearest to the question first.

    Raises:
        InvalidArgument: unknown_target, budget_out_of_range.
    """
    return await _resolve(_known(Intent, intent), ask, catalog)


async def resolve_for_genie_pass(genie_pass: str, ask: Ask, *, catalog: SkillCatalog) -> Resolved:
    """As `resolve_for_intent`."""
    return await _resolve(_known(GeniePass, genie_pass), ask, catalog)


async def resolve_for_pipeline_step(pipeline_step: str, ask: Ask, *, catalog: SkillCatalog) -> Resolved:
    """As `resolve_for_intent`."""
    return await _resolve(_known(PipelineStep, pipeline_step), ask, catalog)


async def _resolve(target: Target, ask: Ask, catalog: SkillCatalog) -> Resolved:
    default = default_budgets(target)
    budgets = Budgets(
        default.overlay if ask.overlay is None else ask.overlay,
        default.context if ask.context is None else ask.context,
    )
    return resolve(catalog.chunks_for(target), budgets)


def _known(targets: type[T], name: str) -> T:
    try:
        return targets(name)
    except ValueError:
        raise InvalidArgument(
            f"no {targets.__name__} has this name; known are {', '.join(targets)}", code="unknown_target"
        ) from None
