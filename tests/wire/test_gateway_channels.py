"""Which knowledge bases a chat channel uses."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import pytest

from kbmesh.messaging import Topics
from kbmesh.postgres import Pool
from tests.support.gateway import ALICE, BOB, TEAM, bearer, client_of, make_gateway

EDITOR = bearer(ALICE, teams=(TEAM,), roles=("editor",))
READER = bearer(BOB, teams=(TEAM,))
PATH = "/channels/slack:C1/settings"


@pytest.fixture
async def http(pool: Pool, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(make_gateway(pool, tmp_path, Topics("kbmesh"))) as client:
        client.headers.update(EDITOR)
        yield client


async def create(http: httpx.AsyncClient, **body: object) -> str:
    created: dict[str, str] = (await http.post("/knowledge-bases", json={"name": "Finance", **body})).json()
    return created["id"]


async def test_a_channel_remembers_its_knowledge_bases_in_their_order(http: httpx.AsyncClient) -> None:
    first, second = await create(http), await create(http)

    put = await http.put(PATH, json={"kb_ids": [second, first, second]})
    again = await http.put("/channels/other/settings", json={"kb_ids": []})

    assert put.json() == {
        "id": "slack:C1",
        "owner_type": "user",
        "owner_id": str(ALICE),
        "kb_ids": [second, first],
    }
    assert (await http.get(PATH)).json() == put.json()
    assert again.json()["kb_ids"] == []
    assert (await http.put(PATH, json={"kb_ids": [first]})).json()["kb_ids"] == [first]
    assert (await http.get(PATH)).json()["kb_ids"] == [first]


async def test_a_knowledge_base_of_others_is_refused_as_a_missing_one(http: httpx.AsyncClient) -> None:
    mine = await create(http)
    theirs = (await http.post("/knowledge-bases", json={"name": "X"}, headers=bearer(BOB))).json()["id"]
    await http.put(PATH, json={"kb_ids": [mine]})

    refused = await http.put(PATH, json={"kb_ids": [mine, theirs]})
    missing = await http.put(PATH, json={"kb_ids": [mine, str(uuid4())]})

    assert (refused.status_code, refused.json()["code"]) == (404, "knowledge_base_not_found")
    assert refused.json()["detail"] == missing.json()["detail"]
    assert (await http.get(PATH)).json()["kb_ids"] == [mine]


async def test_what_is_deleted_vanishes_from_a_channel(http: httpx.AsyncClient) -> None:
    kept, deleted = await create(http), await create(http)
    await http.put(PATH, json={"kb_ids": [deleted, kept]})

    await http.delete(f"/knowledge-bases/{deleted}")

    assert (await http.get(PATH)).json()["kb_ids"] == [kept]


async def test_a_stranger_meets_nothing_under_the_same_id(http: httpx.AsyncClient) -> None:
    mine = await create(http)
    await http.put(PATH, json={"kb_ids": [mine]})

    seen = await http.get(PATH, headers=bearer(BOB))
    missing = await http.get(f"/channels/{uuid4()}/settings", headers=bearer(BOB))
    own = await http.put(PATH, json={"kb_ids": []}, headers=bearer(BOB))

    assert (seen.status_code, seen.json()["code"]) == (404, "channel_not_found")
    assert seen.json()["detail"] == missing.json()["detail"]
    assert own.status_code == 200
    assert (await http.get(PATH)).json()["kb_ids"] == [mine]


async def test_a_team_channel_is_set_by_editors_and_shows_each_member_its_own_view(
    http: httpx.AsyncClient,
) -> None:
    team = {"team": str(TEAM)}
    private, shared = await create(http), await create(http, owner_type="team", owner_id=str(TEAM))

    put = await http.put(PATH, json={"kb_ids": [private, shared]}, params=team)
    seen = await http.get(PATH, params=team, headers=READER)
    refused = await http.put(PATH, json={"kb_ids": []}, params=team, headers=READER)
    stranger = await http.get(PATH, params=team, headers=bearer(uuid4()))
    outsider = await http.put(PATH, json={"kb_ids": []}, params=team, headers=bearer(uuid4()))

    assert put.json()["kb_ids"] == [private, shared]
    assert (put.json()["owner_type"], put.json()["owner_id"]) == ("team", str(TEAM))
    assert seen.json()["kb_ids"] == [shared]
    assert (refused.status_code, refused.json()["code"]) == (403, "not_an_editor")
    assert (stranger.status_code, stranger.json()["code"]) == (404, "channel_not_found")
    assert (outsider.status_code, outsider.json()["code"]) == (403, "not_your_owner")
    assert (await http.get(PATH)).status_code == 404  # the caller's own of that id was never set


@pytest.mark.parametrize(
    ("channel", "body"),
    [
        ("a%00b", {"kb_ids": []}),
        ("x" * 201, {"kb_ids": []}),
        ("a", {}),
        ("a", {"kb_ids": ["nobody"]}),
        ("a", {"kb_ids": [str(UUID(int=number)) for number in range(101)]}),
        ("a", {"kb_ids": [], "surprise": 1}),
    ],
)
async def test_bad_settings_are_refused(http: httpx.AsyncClient, channel: str, body: dict[str, object]) -> None:
    answer = await http.put(f"/channels/{channel}/settings", json=body)

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
