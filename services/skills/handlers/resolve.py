from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

import structlog

from kbmesh.errors import InvalidArgument, Unavailable
from services.skills.domain.resolver import Budgets, Resolved, default_budgets, resolve
from services.skills.domain.skills import ChunkId, GeniePass, Intent, PipelineStep, Target
from services.skills.handlers.nearness import Nearness
from services.skills.ports import SkillCatalog

log = structlog.get_logger(__name__)

MAX_QUESTION_LENGTH: Final = 4_000

T = TypeVar("T", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Ask:
    """What a caller adds to the target: a question, if it is not blank, with so much time to find what is near to
    it, and budgets in place of the target's.

    Raises:
        InvalidArgument: question_too_long.
    """

    question: str = ""
    timeout_s: float = 0
    overlay: int | None = None
    context: int | None = None

    def __post_init__(self) -> None:
        if len(self.question) > MAX_QUESTION_LENGTH:
            raise InvalidArgument(
                f"the question has {len(self.question)} characters, at most {MAX_QUESTION_LENGTH} are read",
                code="question_too_long",
            )


async def resolve_for_intent(
    intent: str, ask: Ask, *, catalog: SkillCatalog, nearness: Nearness | None
) -> Resolved:
    """What the skills for `intent` say, the chunks nearest to the question first, as far as that can be told.

    Raises:
        InvalidArgument: unknown_target, budget_out_of_range.
    """
    return await _resolve(_known(Intent, intent), ask, catalog, nearness)


async def resolve_for_genie_pass(
    genie_pass: str, ask: Ask, *, catalog: SkillCatalog, nearness: Nearness | None
) -> Resolved:
    """As `resolve_for_intent`."""
    return await _resolve(_known(GeniePass, genie_pass), ask, catalog, nearness)


async def resolve_for_pipeline_step(
    pipeline_step: str, ask: Ask, *, catalog: SkillCatalog, nearness: Nearness | None
) -> Resolved:
    """As `resolve_for_intent`."""
    return await _resolve(_known(PipelineStep, pipeline_step), ask, catalog, nearness)


async def _resolve(target: Target, ask: Ask, catalog: SkillCatalog, nearness: Nearness | None) -> Resolved:
    default = default_budgets(target)
    budgets = Budgets(
        default.overlay if ask.overlay is None else ask.overlay,
        default.context if ask.context is None else ask.context,
    )
    chunks = catalog.chunks_for(target)
    near = None if nearness is None or not chunks else await _near(ask, nearness)
    return resolve(chunks, budgets, near)


async def _near(ask: Ask, nearness: Nearness) -> dict[ChunkId, float] | None:
    if not ask.question.strip():
        return None
    try:
        return await nearness.to(ask.question, timeout_s=ask.timeout_s)
    except Unavailable as error:
        log.warning("resolve_degraded", code=error.code, detail=error.detail)
        return None


def _known(targets: type[T], name: str) -> T:
    try:
        return targets(name)
    except ValueError:
        raise InvalidArgument(
            f"no {targets.__name__} has this name; known are {', '.join(targets)}", code="unknown_target"
        ) from None
