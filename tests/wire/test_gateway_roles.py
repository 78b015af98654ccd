"""Who may write where: members of a team see and search, editors write."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import httpx
import pytest

from kbmesh.messaging import Topics
from kbmesh.postgres import Pool
from tests.support.gateway import bearer, client_of, make_gateway, stored_files

ALICE, BOB, TEAM, OTHER_TEAM = UUID(int=1), UUID(int=2), UUID(int=3), UUID(int=4)
EDITOR = bearer(ALICE, teams=(TEAM,), roles=(f"team:{TEAM}:editor",))
READER = bearer(BOB, teams=(TEAM, OTHER_TEAM), roles=(f"team:{OTHER_TEAM}:admin",))


@pytest.fixture
async def http(pool: Pool, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(make_gateway(pool, tmp_path, Topics("kbmesh"))) as client:
        yield client


@pytest.fixture
async def kb(http: httpx.AsyncClient) -> str:
    body = {"name": "Finance", "owner_type": "team", "owner_id": str(TEAM)}
    created: dict[str, str] = (await http.post("/knowledge-bases", json=body, headers=EDITOR)).json()
    return created["id"]


async def upload(http: httpx.AsyncClient, kb: str, headers: dict[str, str]) -> httpx.Response:
    return await http.post(
        f"/knowledge-bases/{kb}/documents", params={"filename": "a.txt"}, content=b"Churn.", headers=headers
    )


async def test_a_member_without_the_role_reads_and_does_not_write(
    http: httpx.AsyncClient, kb: str, tmp_path: Path
) -> None:
    document = (await upload(http, kb, EDITOR)).json()["document_id"]
    stored = stored_files(tmp_path)

    for path in (f"/knowledge-bases/{kb}", f"/knowledge-bases/{kb}/documents", f"/documents/{document}"):
        assert (await http.get(path, headers=READER)).status_code == 200
    refusals = [
        await upload(http, kb, READER),
        await http.delete(f"/documents/{document}", headers=READER),
        await http.patch(f"/knowledge-bases/{kb}", json={"name": "Mine"}, headers=READER),
        await http.delete(f"/knowledge-bases/{kb}", headers=READER),
        await http.post(
            "/knowledge-bases",
            json={"name": "X", "owner_type": "team", "owner_id": str(TEAM)},
            headers=READER,
        ),
    ]

    assert [(answer.status_code, answer.json()["code"]) for answer in refusals] == [(403, "not_an_editor")] * 5
    assert stored_files(tmp_path) == stored
    assert (await http.get(f"/documents/{document}", headers=EDITOR)).status_code == 200


@pytest.mark.parametrize("role", ["editor", "admin", f"team:{TEAM}:admin", f"team:{TEAM}:editor"])
async def test_an_editor_of_the_team_writes_what_a_colleague_began(
    http: httpx.AsyncClient, kb: str, role: str
) -> None:
    colleague = bearer(BOB, teams=(TEAM,), roles=(role,))

    uploaded = await upload(http, kb, colleague)
    renamed = await http.patch(f"/knowledge-bases/{kb}", json={"name": "Books"}, headers=colleague)
    deleted = await http.delete(f"/documents/{uploaded.json()['document_id']}", headers=colleague)

    assert (uploaded.status_code, renamed.status_code, deleted.status_code) == (202, 200, 200)
    assert (await http.delete(f"/knowledge-bases/{kb}", headers=colleague)).status_code == 200


async def test_a_role_opens_nothing_to_who_is_not_a_member(http: httpx.AsyncClient, kb: str) -> None:
    stranger = bearer(BOB, roles=("admin", "editor", f"team:{TEAM}:editor"))

    answers = [
        await upload(http, kb, stranger),
        await http.patch(f"/knowledge-bases/{kb}", json={"name": "Mine"}, headers=stranger),
        await http.delete(f"/knowledge-bases/{kb}", headers=stranger),
    ]

    assert [answer.json()["code"] for answer in answers] == ["knowledge_base_not_found"] * 3


async def test_a_rename_changes_what_it_names_and_moves_the_time(http: httpx.AsyncClient) -> None:
    created = (
        await http.post("/knowledge-bases", json={"name": "Old", "description": "Kept"}, headers=bearer(ALICE))
    ).json()
    path = f"/knowledge-bases/{created['id']}"

    renamed = (await http.patch(path, json={"name": "  New "}, headers=bearer(ALICE))).json()
    cleared = (await http.patch(path, json={"description": ""}, headers=bearer(ALICE))).json()

    assert renamed == created | {"name": "New", "updated_at": renamed["updated_at"]}
    assert renamed["updated_at"] > created["updated_at"]
    assert (cleared["name"], cleared["description"]) == ("New", "")
    assert (await http.get(path, headers=bearer(ALICE))).json().items() >= cleared.items()


@pytest.mark.parametrize("body", [{}, {"name": None}, {"name": " "}, {"owner_id": str(BOB)}])
async def test_a_rename_to_nothing_is_refused(http: httpx.AsyncClient, body: dict[str, object]) -> None:
    created = (await http.post("/knowledge-bases", json={"name": "Old"}, headers=bearer(ALICE))).json()

    answer = await http.patch(f"/knowledge-bases/{created['id']}", json=body, headers=bearer(ALICE))

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
