"""For operators: another model or another number of dimensions, while searches and uploads go on."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from kbmesh.errors import InvalidArgument, NotFound, PreconditionFailed
from services.embedder.domain.chunks import Found
from services.embedder.domain.encoding import InputType, Lane
from services.embedder.domain.models import trained_dimensions
from services.embedder.domain.shadow import DEPTH, JudgedQuery, ShadowReport, compare, first_sentence
from services.embedder.domain.spaces import Space, SpaceState, SpaceStatus
from services.embedder.handlers.embedding import MAX_TEXTS, check_texts, encode
from services.embedder.handlers.filling import check_model
from services.embedder.ports import Models, SpaceStore

SAMPLED_QUERIES: Final = 50
MAX_QUERIES: Final = 200
MAX_DIMENSIONS: Final = 4000
"""What pgvector's index takes of half precision."""


async def create_space(
    model: str, dimensions: int, *, store: SpaceStore, models: Models
) -> tuple[SpaceState, list[str]]:
    """A space that is filled in the background from now on, and warnings; `dimensions` 0: all that the model has.

    Raises:
        InvalidArgument: no such model is configured (`unknown_model`), or it has fewer dimensions, or there are
            more than the index takes (`bad_dimensions`).
        Conflict: the space exists.
    """
    if model not in models:
        raise InvalidArgument(f"the models that are configured are {', '.join(models)}", code="unknown_model")
    available = models[model].dimensions
    most = min(available, MAX_DIMENSIONS)
    wanted = dimensions or available
    if not 1 <= wanted <= most:
        raise InvalidArgument(
            f"a space of {model} has 1 to {most} dimensions, not {wanted}", code="bad_dimensions"
        )
    state = await store.create(Space(model, wanted))
    warnings = []
    if wanted < available and wanted not in trained_dimensions(model):
        warnings.append(
            f"{model} has {available} dimensions and is not known to be trained to be cut to {wanted}, so it may"
            " find less: compare the recall of both in the shadow check"
        )
    return state, warnings


async def check_space(
    space_id: str, queries: Sequence[JudgedQuery], *, store: SpaceStore, models: Models
) -> ShadowReport:
    """The shadow check of a space against the active one.

    Args:
        queries: at most 200; without any, first sentences of stored chunks, which their own chunk answers.

    Raises:
        NotFound: no such space.
        PreconditionFailed: it is being filled for the first time (`space_filling`), or its model is not configured
            (`model_not_configured`).
        Misconfigured: its model is another one by now.
        InvalidArgument: too many queries, an empty one, or one over 32 KiB.
    """
    states = await store.states()
    candidate = _find(states, space_id)
    if not candidate.indexed:
        raise PreconditionFailed(
            f"{space_id} is being filled for the first time: {candidate.waiting} chunks wait", code="space_filling"
        )
    active = next(state for state in states if state.status is SpaceStatus.ACTIVE)
    if queries:
        check_texts([judged.query for judged in queries], most=MAX_QUERIES)
    for space in (active.space, candidate.space):
        _require_model(space, models)
        await check_model(space, store=store, models=models)
    if not queries:
        queries = await _sample(store)
    texts = [judged.query for judged in queries]
    return compare(
        queries,
        await _answers(texts, active.space, store=store, models=models),
        await _answers(texts, candidate.space, store=store, models=models),
    )


async def activate_space(
    space_id: str, queries: Sequence[JudgedQuery], *, force: bool, store: SpaceStore, models: Models
) -> tuple[SpaceState, ShadowReport]:
    """Checks a space and makes it the active one.

    Args:
        force: although the check failed, or chunks could not be encoded.

    Raises:
        NotFound: no such space.
        PreconditionFailed: as check_space; or the check failed (`shadow_check_failed`), or chunks could not be
            encoded (`space_incomplete`), unless forced.
        InvalidArgument: as check_space.
        Unavailable: it did not catch up with new uploads in time; try again.
    """
    report = await check_space(space_id, queries, store=store, models=models)
    if report.refusal and not force:
        raise PreconditionFailed(
            f"{space_id} failed the shadow check: {report.refusal}", code="shadow_check_failed"
        )
    return await store.activate(space_id, accept_failed=force), report


async def rollback_space(*, store: SpaceStore, models: Models) -> SpaceState:
    """Makes the space that was retired last the active one again, even if it lacks chunks by now.

    Raises:
        PreconditionFailed: none was retired (`nothing_to_roll_back_to`), or its model is not configured any more
            (`model_not_configured`).
        Unavailable: it did not catch up with new uploads in time; try again.
    """
    retired = [state for state in await store.states() if state.status is SpaceStatus.RETIRED]
    if not retired:
        raise PreconditionFailed("no space was retired", code="nothing_to_roll_back_to")
    last = max(retired, key=lambda state: state.retired_at or state.created_at)
    _require_model(last.space, models)
    await check_model(last.space, store=store, models=models)
    return await store.activate(last.space.id, accept_failed=True)


def has_model(space: Space, models: Models) -> bool:
    """Whether vectors of `space` can be computed here."""
    return space.model in models and models[space.model].dimensions >= space.dimensions


def _require_model(space: Space, models: Models) -> None:
    if not has_model(space, models):
        raise PreconditionFailed(
            f"{space.id} needs the model {space.model} with {space.dimensions} dimensions, not configured here",
            code="model_not_configured",
        )


def _find(states: Sequence[SpaceState], space_id: str) -> SpaceState:
    for state in states:
        if state.space.id == space_id:
            return state
    raise NotFound(f"there is no embedding space {space_id}", code="space_not_found")


async def _sample(store: SpaceStore) -> list[JudgedQuery]:
    chunks = await store.sample(SAMPLED_QUERIES)
    sentences = [(chunk_id, first_sentence(content)) for chunk_id, content in chunks]
    return [JudgedQuery(sentence, frozenset({str(chunk_id)})) for chunk_id, sentence in sentences if sentence]


async def _answers(texts: Sequence[str], space: Space, *, store: SpaceStore, models: Models) -> list[list[Found]]:
    batches = [texts[start : start + MAX_TEXTS] for start in range(0, len(texts), MAX_TEXTS)]
    vectors = [
        (await encode(batch, InputType.QUERY, Lane.CALLER, space=space, models=models)).vectors
        for batch in batches
    ]
    return await store.nearest(np.concatenate(vectors), space, limit=DEPTH) if vectors else []
