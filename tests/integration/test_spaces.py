import asyncio
from collections.abc import Sequence

import pytest

from kbmesh.errors import Conflict, Misconfigured, NotFound, PreconditionFailed, Unavailable
from kbmesh.postgres import Pool
from services.embedder.adapters.postgres import backlog as backlog_module
from services.embedder.adapters.postgres import (
    ensure_space,
)
from services.embedder.adapters.postgres import space_store as space_store_module
from services.embedder.domain.chunks import Source
from services.embedder.domain.encoding import Encoded, InputType, Lane
from services.embedder.domain.spaces import Space, SpaceStatus
from services.embedder.handlers import check_model
from tests.support.filling import CUT, NEW, OLD, HashEncoder, Spaces
from tests.support.sources import add_document, add_record, add_revision
from tests.support.vectors import open_space


@pytest.fixture
async def spaces(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Spaces:
    monkeypatch.setattr("services.embedder.adapters.postgres.spaces.READ_EVERY_S", 0.02)
    monkeypatch.setattr("services.embedder.entrypoints.filler.IDLE_S", 0.01)
    await open_space(pool, OLD)
    return Spaces(pool)


@pytest.mark.parametrize("space", [CUT, NEW], ids=["fewer dimensions", "another model"])
async def test_a_new_space_is_filled_from_the_stored_chunks_indexed_and_activated(
    spaces: Spaces, space: Space
) -> None:
    document = await add_document(spaces.pool, "one", "two", "three")
    record = await add_record(spaces.pool, Source("skill_chunk", "skill-1", 1), "four")
    await spaces.embed(document, record)
    created = await spaces.store.create(space)
    assert (created.status, created.waiting, created.indexed) == (SpaceStatus.BUILDING, 4, False)
    with pytest.raises(PreconditionFailed) as refused:
        await spaces.store.activate(space.id)
    assert refused.value.code == "space_filling"

    await spaces.fill(space)
    filled = await spaces.state(space)
    assert (filled.filled, filled.waiting, filled.failed, filled.indexed) == (4, 0, 0, True)
    assert set(spaces.models[space.model].lanes[-1:]) == {Lane.REFILL}
    index = await spaces.pool.fetchrow(
        "SELECT indisvalid, indisready FROM pg_index WHERE indexrelid = $1::regclass", f"{space.table}_hnsw"
    )
    assert index is not None
    assert tuple(index) == (True, True)

    assert (await spaces.store.activate(space.id)).status is SpaceStatus.ACTIVE
    assert (await spaces.directory.find(), spaces.directory.inactive()) == (space, [OLD])
    assert await spaces.live(space) == await spaces.live(OLD) == {*document.chunk_ids, *record.chunk_ids}
    stored = await spaces.pool.fetch(f"SELECT vector_norm(embedding) AS norm FROM {space.table}")  # noqa: S608
    if space == CUT:
        assert [row["norm"] for row in stored] == pytest.approx([1] * 4)


async def test_what_comes_while_a_space_is_built_goes_to_both_and_swaps_in_both(spaces: Spaces) -> None:
    kept, gone = await add_document(spaces.pool, "one", "two"), await add_document(spaces.pool, "three")
    await spaces.embed(kept, gone)
    await spaces.store.create(NEW)
    await spaces.fill(NEW)
    revision = await add_revision(spaces.pool, kept, "one", "five")
    fresh = await add_document(spaces.pool, "six")
    await spaces.embed(revision, fresh)
    await spaces.pool.execute("DELETE FROM documents WHERE id = $1", gone.document_id)
    # The vector of a text that has not changed was taken over, and is live with its revision.
    assert await spaces.live(NEW) == {revision.chunk_ids[0]}
    assert (await spaces.state(NEW)).waiting == 2
    await spaces.fill(NEW)
    assert await spaces.live(NEW) == await spaces.live(OLD) == {*revision.chunk_ids, *fresh.chunk_ids}


async def test_the_retired_space_is_kept_up_to_date_so_that_one_can_go_back(spaces: Spaces) -> None:
    await spaces.embed(await add_document(spaces.pool, "one"))
    await spaces.store.create(NEW)
    await spaces.fill(NEW)
    await spaces.store.activate(NEW.id)
    await spaces.embed(await add_document(spaces.pool, "two"))
    async with spaces.filling():
        back = await spaces.store.activate(OLD.id)
    assert back.status is SpaceStatus.ACTIVE
    assert [(state.space, state.status) for state in await spaces.store.states()] == [
        (OLD, SpaceStatus.ACTIVE),
        (NEW, SpaceStatus.RETIRED),
    ]
    assert await spaces.live(OLD) == await spaces.live(NEW) == await spaces.live_chunks()


async def test_a_space_that_does_not_catch_up_is_not_activated_and_uploads_go_on(
    spaces: Spaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_store_module, "CATCH_UP_TIMEOUT_S", 0.2)
    await spaces.store.create(NEW)
    await spaces.fill(NEW)
    document = await add_document(spaces.pool, "one")
    await spaces.embed(document)
    with pytest.raises(Unavailable) as behind:
        await spaces.store.activate(NEW.id)
    assert behind.value.code == "space_behind"
    await spaces.embed(await add_revision(spaces.pool, document, "two"))
    assert await spaces.directory.find() == OLD


async def test_a_text_that_the_new_model_cannot_encode_is_given_up_alone_and_told_of(spaces: Spaces) -> None:
    spaces.models[OLD.model] = type("Any", (HashEncoder,), {"encode": _encode_anything})(OLD.dimensions)
    document = await add_document(spaces.pool, "one", "bad", "three")
    await spaces.embed(document)
    await spaces.store.create(NEW)
    await spaces.fill(NEW)
    state = await spaces.state(NEW)
    assert (state.filled, state.waiting, state.failed, state.indexed) == (2, 0, 1, True)
    with pytest.raises(PreconditionFailed) as refused:
        await spaces.store.activate(NEW.id)
    assert refused.value.code == "space_incomplete"
    assert (await spaces.store.activate(NEW.id, accept_failed=True)).status is SpaceStatus.ACTIVE


async def _encode_anything(self: HashEncoder, texts: Sequence[str], input_type: InputType, lane: Lane) -> Encoded:
    return await HashEncoder.encode(self, [text.replace("bad", "good") for text in texts], input_type, lane)


async def test_filling_survives_a_restart_and_takes_back_what_a_dead_process_had_taken(
    spaces: Spaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog_module, "SEEDED_AT_ONCE", 2)
    monkeypatch.setattr(backlog_module, "LEASE_S", 0)
    await spaces.embed(await add_document(spaces.pool, *map(str, range(7))))
    await spaces.store.create(NEW)
    assert not await spaces.backlog.seed(NEW)
    assert len(await spaces.backlog.take(NEW, 100)) == 2
    after = Spaces(spaces.pool)
    assert (await after.state(NEW)).waiting == 7
    await after.fill(NEW)
    assert await after.live(NEW) == await after.live_chunks()


async def test_an_outage_of_the_model_leaves_everything_in_the_backlog(spaces: Spaces) -> None:
    await spaces.embed(await add_document(spaces.pool, "one", "two"))
    await spaces.store.create(NEW)

    async def down(*_: object) -> Encoded:
        raise Unavailable("the endpoint does not answer")

    up, spaces.models[NEW.model] = spaces.models[NEW.model], type("Down", (HashEncoder,), {"encode": down})(6)
    with pytest.raises(Unavailable):
        await spaces.fill(NEW)
    assert ((await spaces.state(NEW)).waiting, (await spaces.state(NEW)).failed) == (2, 0)
    spaces.models[NEW.model] = up
    await spaces.fill(NEW)
    assert (await spaces.state(NEW)).filled == 2


async def test_a_space_is_dropped_with_its_vectors_while_it_is_filled(spaces: Spaces) -> None:
    await spaces.embed(await add_document(spaces.pool, *map(str, range(300))))
    await spaces.store.create(NEW)
    async with spaces.filling():
        dropped = await spaces.store.drop(NEW.id)
    assert dropped.space == NEW
    assert [state.space for state in await spaces.store.states()] == [OLD]
    assert await spaces.pool.fetchval("SELECT to_regclass($1)", NEW.table) is None
    assert await spaces.pool.fetchval("SELECT count(*) FROM space_backlog") == 0
    await spaces.embed(await add_document(spaces.pool, "after"))


async def test_what_cannot_be_asked_of_a_space_is_refused(spaces: Spaces) -> None:
    await spaces.store.create(NEW)
    with pytest.raises(Conflict):
        await spaces.store.create(NEW)
    for call in (spaces.store.activate, spaces.store.drop):
        with pytest.raises(NotFound):
            await call("no_such_space")
    with pytest.raises(PreconditionFailed) as refused:
        await spaces.store.drop(OLD.id)
    assert refused.value.code == "space_is_active"
    assert (await spaces.store.activate(OLD.id)).space == OLD


async def test_the_nearest_are_found_in_either_space(spaces: Spaces) -> None:
    document = await add_document(spaces.pool, *map(str, range(30)))
    await spaces.embed(document)
    await spaces.store.create(NEW)
    await spaces.fill(NEW)
    sample = await spaces.store.sample(5)
    assert sample == await spaces.store.sample(5)
    for space in (OLD, NEW):
        model = spaces.models[space.model]
        encoded = await model.encode([text for _, text in sample], InputType.QUERY, Lane.CALLER)
        answers = await spaces.store.nearest(encoded.vectors, space, limit=10)
        assert [len(found) for found in answers] == [10] * 5
        assert [found[0].chunk_id for found in answers] == [chunk_id for chunk_id, _ in sample]
        assert {found[0].source_id for found in answers} == {document.source.source_id}


async def test_nothing_is_lost_while_spaces_change_places_under_uploads(spaces: Spaces) -> None:
    """Documents come, change and go while the active space goes back and forth."""
    await spaces.store.create(NEW)
    embedded = 0

    async def upload(number: int) -> None:
        nonlocal embedded
        document = await add_document(spaces.pool, f"{number} a", f"{number} b")
        await spaces.embed(document)
        if number % 3 == 0:
            await spaces.embed(await add_revision(spaces.pool, document, f"{number} a", f"{number} c"))
        if number % 5 == 0:
            await spaces.pool.execute("DELETE FROM documents WHERE id = $1", document.document_id)
        embedded += 1

    async with spaces.filling(), asyncio.timeout(60):
        while not (await spaces.state(NEW)).indexed:
            await asyncio.sleep(0.02)

        async def change_places() -> None:
            for space in (NEW, OLD, NEW):
                before = embedded
                while embedded < before + 5:
                    await asyncio.sleep(0.01)
                await spaces.store.activate(space.id)

        changing = asyncio.create_task(change_places())
        number = 0
        while not changing.done():
            await asyncio.gather(*(upload(number + offset) for offset in range(4)))
            number += 4
        await changing
    # What a worker had just taken when it was stopped is taken by others when its lease ends.
    await spaces.pool.execute("UPDATE space_backlog SET leased_until = now()")
    await spaces.fill(OLD)
    assert await spaces.live(OLD) == await spaces.live(NEW) == await spaces.live_chunks()
    assert {row["status"] for row in await spaces.pool.fetch("SELECT DISTINCT status FROM documents")} == {"ready"}


async def test_another_model_under_the_same_name_is_found_out(spaces: Spaces) -> None:
    await check_model(OLD, store=spaces.store, models=spaces.models)
    await check_model(OLD, store=spaces.store, models=spaces.models)
    spaces.models[OLD.model] = HashEncoder(OLD.dimensions, name="another")
    with pytest.raises(Misconfigured) as refused:
        await check_model(OLD, store=spaces.store, models=spaces.models)
    assert refused.value.code == "model_changed"


async def test_a_start_needs_the_model_of_the_active_space_and_a_space_for_the_configured_one(
    spaces: Spaces,
) -> None:
    models = {OLD.model: OLD.dimensions, NEW.model: NEW.dimensions}
    await spaces.store.create(CUT)
    await spaces.fill(CUT)
    await spaces.store.activate(CUT.id)
    # Neither a dimension that was not stated nor that of a retired space is a mistake.
    await ensure_space(spaces.pool, OLD.model, None, models)
    await ensure_space(spaces.pool, OLD.model, OLD.dimensions, models)
    for model, dimensions, there in (
        (OLD.model, 5, models),
        (NEW.model, None, models),
        (OLD.model, None, {OLD.model: 3}),
        (OLD.model, OLD.dimensions + 1, models),
    ):
        with pytest.raises(Misconfigured) as refused:
            await ensure_space(spaces.pool, model, dimensions, there)
        assert refused.value.code == "space_mismatch"
    assert await spaces.directory.find() == CUT


async def test_vectors_of_more_values_than_a_row_holds_are_stored_too(spaces: Spaces) -> None:
    wide = Space("wide-model", 3072)
    spaces.models[wide.model] = HashEncoder(wide.dimensions)
    await spaces.embed(await add_document(spaces.pool, "one"))
    await spaces.store.create(wide)
    await spaces.fill(wide)
    assert (await spaces.state(wide)).filled == 1
