"""How long it takes to resolve the skills of a target, in this process, for every target that has some.

Once with the curated skills as they are, once with each of them nine times over. Without a question, and with one
whose nearness to the chunks is known: what the embedder takes for it is measured by `query`. The first call,
which reads the Markdown of all texts, is told apart; of the others medians and 95th percentiles, milliseconds.
"""

import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from deploy.embedded.benchmarks.report import report
from services.skills import content as content  # importing it registers the skills
from services.skills.domain.registry import CURATED, SkillRegistry
from services.skills.domain.resolver import default_budgets, resolve
from services.skills.domain.skills import ChunkId, GeniePass, Intent, PipelineStep, Target

ROUNDS: Final = 200
TIMES_OVER: Final = 9


def bench(*, quick: bool) -> None:
    for registry in (CURATED, _times_over(TIMES_OVER)):
        known: list[Target] = [*Intent, *GeniePass, *PipelineStep]
        targets = [target for target in known if registry.skills_for(target)]
        nearness = {listed.id: 1 / place for place, listed in enumerate(registry.chunks(), start=1)}
        for near in (None, nearness):
            seconds = [
                _resolve(registry, target, near) for _ in range(5 if quick else ROUNDS) for target in targets
            ]
            figures = {"question": near is not None, "chunks": len(nearness), "samples": len(seconds) - 1}
            report("skills_resolve_first_ms", seconds[0] * 1000, **figures)
            report("skills_resolve_p50_ms", statistics.median(seconds[1:]) * 1000, **figures)
            report("skills_resolve_p95_ms", statistics.quantiles(seconds[1:], n=20)[-1] * 1000, **figures)


def _resolve(registry: SkillRegistry, target: Target, nearness: Mapping[ChunkId, float] | None) -> float:
    started = time.perf_counter()
    resolve(registry.chunks_for(target), default_budgets(target), nearness)
    return time.perf_counter() - started


def _times_over(times: int) -> SkillRegistry:
    registry = SkillRegistry()
    for number in range(times):
        for skill in CURATED.all():
            registry.register(replace(skill, id=f"{skill.id}-{number}"))
    return registry
