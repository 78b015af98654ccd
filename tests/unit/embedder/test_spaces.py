from collections.abc import Awaitable
from datetime import timedelta
from uuid import UUID

import pytest

from kbmesh.errors import Conflict, InvalidArgument, KbmeshError, NotFound, PreconditionFailed
from services.embedder.domain.encoding import InputType, Lane
from services.embedder.domain.shadow import JudgedQuery
from services.embedder.domain.spaces import Space, SpaceState, SpaceStatus
from services.embedder.handlers.spaces import (
    MAX_QUERIES,
    activate_space,
    check_space,
    create_space,
    rollback_space,
)
from tests.support.spaces import ACTIVE, CHUNKS, CREATED, SpacesInMemory, WordModel, word_models


@pytest.fixture
def models() -> dict[str, WordModel]:
    return word_models()


@pytest.fixture
def store(models: dict[str, WordModel]) -> SpacesInMemory:
    return SpacesInMemory(ACTIVE, models, CHUNKS)


async def refusal(call: Awaitable[object], kind: type[KbmeshError]) -> str:
    with pytest.raises(kind) as refused:
        await call
    return refused.value.code


async def filled(store: SpacesInMemory, models: dict[str, WordModel], model: str, dimensions: int = 0) -> str:
    space = (await create_space(model, dimensions, store=store, models=models))[0].space
    store.fill(space.id)
    return space.id


async def test_a_space_has_all_dimensions_of_its_model_unless_told_otherwise(
    store: SpacesInMemory, models: dict[str, WordModel]
) -> None:
    whole, warnings = await create_space("more-words", 0, store=store, models=models)
    assert (whole.space, warnings) == (Space("more-words", 512), [])
    cut, warnings = await create_space("more-words", 64, store=store, models=models)
    assert cut.space == Space("more-words", 64)
    assert ["shadow check" in warning for warning in warnings] == [True]


@pytest.mark.parametrize(
    ("model", "dimensions", "code"),
    [
        ("unheard-of", 0, "unknown_model"),
        ("", 0, "unknown_model"),
        ("words", 257, "bad_dimensions"),
        ("words", -1, "bad_dimensions"),
        ("huge", 0, "bad_dimensions"),
    ],
)
async def test_a_space_that_no_model_could_fill_is_not_created(
    store: SpacesInMemory, models: dict[str, WordModel], model: str, dimensions: int, code: str
) -> None:
    models["huge"] = WordModel(4096)
    creating = create_space(model, dimensions, store=store, models=models)
    assert await refusal(creating, InvalidArgument) == code
    assert len(await store.states()) == 1


async def test_a_space_that_exists_is_not_created_again(
    store: SpacesInMemory, models: dict[str, WordModel]
) -> None:
    await refusal(create_space("words", 256, store=store, models=models), Conflict)


async def test_a_model_that_finds_as_much_passes_with_queries_of_stored_chunks(
    store: SpacesInMemory, models: dict[str, WordModel]
) -> None:
    space_id = await filled(store, models, "more-words")
    report = await check_space(space_id, [], store=store, models=models)
    assert (report.queries, report.judged) == (50, 50)
    assert report.recall_active == report.recall_candidate == 1
    assert report.overlap > 0.5
    for model in (models["words"], models["more-words"]):
        assert model.calls[1:] == [(32, InputType.QUERY, Lane.CALLER), (18, InputType.QUERY, Lane.CALLER)]


async def test_a_model_that_finds_nothing_is_not_activated_unless_forced(
    store: SpacesInMemory, models: dict[str, WordModel]
) -> None:
    space_id = await filled(store, models, "blind")
    activating = activate_space(space_id, [], force=False, store=store, models=models)
    assert await refusal(activating, PreconditionFailed) == "shadow_check_failed"
    assert (await store.states())[0].space == ACTIVE

    state, report = await activate_space(space_id, [], force=True, store=store, models=models)
    assert (state.space.model, state.status) == ("blind", SpaceStatus.ACTIVE)
    assert report.recall_candidate < report.recall_active


async def test_judgements_of_the_operator_decide(store: SpacesInMemory, models: dict[str, WordModel]) -> None:
    space_id = await filled(store, models, "blind")
    # A model that sees no words gives the first chunks, whatever is asked.
    queries = [JudgedQuery("topic40", frozenset({str(UUID(int=0)), "source-1"}))]
    state, report = await activate_space(space_id, queries, force=False, store=store, models=models)
    assert state.status is SpaceStatus.ACTIVE
    assert (report.queries, report.judged, report.recall_candidate) == (1, 1, 1)


async def test_queries_without_judgements_are_compared_by_overlap(
    store: SpacesInMemory, models: dict[str, WordModel]
) -> None:
    space_id = await filled(store, models, "blind")
    # Ten chunks that are not among the first ten.
    query = JudgedQuery(" ".join(f"topic{number}" for number in range(40, 50)))
    activating = activate_space(space_id, [query], force=False, store=store, models=models)
    assert await refusal(activating, PreconditionFailed) == "shadow_check_failed"


@pytest.mark.parametrize(
    ("queries", "code"),
    [
        ([JudgedQuery("q")] * (MAX_QUERIES + 1), "bad_text_count"),
        ([JudgedQuery("q"), JudgedQuery(" ")], "empty_text"),
        ([JudgedQuery("é" * 16_385)], "text_too_long"),
    ],
    ids=["too many", "blank", "too long"],
)
async def test_queries_that_cannot_be_asked_are_refused(
    store: SpacesInMemory, models: dict[str, WordModel], queries: list[JudgedQuery], code: str
) -> None:
    space_id = await filled(store, models, "more-words")
    assert await refusal(check_space(space_id, queries, store=store, models=models), InvalidArgument) == code
    assert models["words"].calls == []


async def test_spaces_that_cannot_be_compared_are_not_checked(
    store: SpacesInMemory, models: dict[str, WordModel]
) -> None:
    assert await refusal(check_space("nowhere_8", [], store=store, models=models), NotFound) == "space_not_found"
    space_id = (await create_space("more-words", 0, store=store, models=models))[0].space.id
    checking = check_space(space_id, [], store=store, models=models)
    assert await refusal(checking, PreconditionFailed) == "space_filling"
    store.fill(space_id)
    checking = check_space(space_id, [], store=store, models={"words": models["words"]})
    assert await refusal(checking, PreconditionFailed) == "model_not_configured"


async def test_an_empty_index_has_nothing_against_a_change(models: dict[str, WordModel]) -> None:
    store = SpacesInMemory(ACTIVE, models, {})
    space_id = await filled(store, models, "blind")
    state, report = await activate_space(space_id, [], force=False, store=store, models=models)
    assert (state.status, report.queries, report.overlap) == (SpaceStatus.ACTIVE, 0, 1)


async def test_chunks_that_could_not_be_encoded_are_accepted_by_force_alone(
    store: SpacesInMemory, models: dict[str, WordModel]
) -> None:
    space_id = await filled(store, models, "more-words")
    store.fill(space_id, failed=2)
    activating = activate_space(space_id, [], force=False, store=store, models=models)
    assert await refusal(activating, PreconditionFailed) == "space_incomplete"
    state, _ = await activate_space(space_id, [], force=True, store=store, models=models)
    assert state.status is SpaceStatus.ACTIVE


async def test_a_rollback_returns_to_what_was_retired_last_and_back_again(
    store: SpacesInMemory, models: dict[str, WordModel]
) -> None:
    rolling_back = rollback_space(store=store, models=models)
    assert await refusal(rolling_back, PreconditionFailed) == "nothing_to_roll_back_to"
    wide, blind = await filled(store, models, "more-words"), await filled(store, models, "blind")
    for space_id in (wide, blind):
        await activate_space(space_id, [], force=True, store=store, models=models)
    store.fill(wide, failed=1)
    assert (await rollback_space(store=store, models=models)).space.id == wide
    assert (await rollback_space(store=store, models=models)).space.id == blind
    only_blind = {"blind": models["blind"]}
    rolling_back = rollback_space(store=store, models=only_blind)
    assert await refusal(rolling_back, PreconditionFailed) == "model_not_configured"


async def test_activating_once_more_changes_nothing(store: SpacesInMemory, models: dict[str, WordModel]) -> None:
    before = await store.states()
    _, report = await activate_space(ACTIVE.id, [], force=False, store=store, models=models)
    assert report.overlap == 1
    assert await store.states() == before


@pytest.mark.parametrize(
    ("status", "filled", "waiting", "eta_s"),
    [
        (SpaceStatus.BUILDING, 30, 10, 20),
        (SpaceStatus.BUILDING, 0, 40, None),
        (SpaceStatus.BUILDING, 40, 0, 0),
        (SpaceStatus.RETIRED, 30, 10, None),
        (SpaceStatus.ACTIVE, 40, 0, None),
    ],
)
def test_the_time_that_is_left_is_that_at_the_speed_so_far(
    status: SpaceStatus, filled: int, waiting: int, eta_s: float | None
) -> None:
    state = SpaceState(ACTIVE, status, filled, waiting, 0, False, CREATED)
    assert state.eta_s(CREATED + timedelta(minutes=1)) == eta_s
