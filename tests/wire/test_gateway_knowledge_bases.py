from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from kbmesh.messaging import Topics
from kbmesh.postgres import Pool
from tests.support.documents import receipt
from tests.support.gateway import ALICE, BOB, TEAM, bearer, client_of, make_gateway


@pytest.fixture
async def http(pool: Pool, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(make_gateway(pool, tmp_path, Topics("kbmesh"))) as client:
        yield client


async def create(http: httpx.AsyncClient, headers: dict[str, str], **body: object) -> dict[str, str]:
    answer = await http.post("/knowledge-bases", json={"name": "Finance", **body}, headers=headers)
    assert answer.status_code == 201, answer.text
    created: dict[str, str] = answer.json()
    assert answer.headers["location"] == f"/knowledge-bases/{created['id']}"
    return created


async def test_a_personal_knowledge_base_belongs_to_its_creator(http: httpx.AsyncClient) -> None:
    created = await create(http, bearer(ALICE), description="Numbers")

    answer = await http.get(f"/knowledge-bases/{created['id']}", headers=bearer(ALICE))

    empty = {"document_count": 0, "size_bytes": 0, "ready_count": 0, "failed_count": 0}
    assert answer.json() == {**created, **empty}
    assert (created["owner_type"], created["owner_id"]) == ("user", str(ALICE))
    assert created["description"] == "Numbers"


async def test_a_team_knowledge_base_is_seen_by_the_members(http: httpx.AsyncClient) -> None:
    member = bearer(ALICE, teams=(TEAM,), roles=("editor",))
    created = await create(http, member, owner_type="team", owner_id=str(TEAM))

    colleague = await http.get("/knowledge-bases", headers=bearer(BOB, teams=(TEAM,)))

    assert [item["id"] for item in colleague.json()["items"]] == [created["id"]]


@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH"])
async def test_a_stranger_gets_what_a_missing_id_gets(http: httpx.AsyncClient, method: str) -> None:
    body = {"name": "Mine"} if method == "PATCH" else None
    created = await create(http, bearer(ALICE))
    stranger = bearer(BOB, roles=("admin",))

    theirs = await http.request(method, f"/knowledge-bases/{created['id']}", headers=stranger, json=body)
    missing = await http.request(method, f"/knowledge-bases/{uuid4()}", headers=stranger, json=body)

    assert theirs.status_code == missing.status_code == 404
    assert _without_trace(theirs) == _without_trace(missing)
    assert (await http.get("/knowledge-bases", headers=stranger)).json()["items"] == []
    assert (await http.get(f"/knowledge-bases/{created['id']}", headers=bearer(ALICE))).status_code == 200


@pytest.mark.parametrize(
    "owner",
    [
        {"owner_type": "user", "owner_id": str(BOB)},
        {"owner_type": "team", "owner_id": str(TEAM)},
        {"owner_type": "team"},
    ],
)
async def test_nobody_creates_for_others(http: httpx.AsyncClient, owner: dict[str, str]) -> None:
    answer = await http.post("/knowledge-bases", json={"name": "X", **owner}, headers=bearer(ALICE))

    assert answer.status_code == 403
    assert answer.json()["code"] == "not_your_owner"


async def test_the_list_is_paged_in_order_of_creation(http: httpx.AsyncClient) -> None:
    created = [(await create(http, bearer(ALICE), name=f"KB {n}"))["id"] for n in range(5)]

    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = (await http.get("/knowledge-bases", params={"limit": "2", **after}, headers=bearer(ALICE))).json()
        seen += [item["id"] for item in page["items"]]
        if page["next_after"] is None:
            break
        after = {"after": page["next_after"]}

    assert seen == created


async def test_a_deleted_knowledge_base_is_gone(http: httpx.AsyncClient) -> None:
    created = await create(http, bearer(ALICE))

    answer = await http.delete(f"/knowledge-bases/{created['id']}", headers=bearer(ALICE))

    assert answer.json() == receipt()
    assert (await http.get(f"/knowledge-bases/{created['id']}", headers=bearer(ALICE))).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"not json", 422),
        (b"\xff", 422),
        (b"[" * 60_000, 422),
        (b'{"name": ""}', 422),
        (b'{"name": "   "}', 422),
        (b'{"name": "a\\u0000b"}', 422),
        (b'{"name": "a\\ud800b"}', 422),
        (b'{"name": "' + b"x" * 201 + b'"}', 422),
        (b'{"name": "x", "surprise": 1}', 422),
        (b'{"name": "x", "owner_id": "nobody"}', 422),
        (b'{"name": "' + b"x" * 100_000 + b'"}', 413),
    ],
)
async def test_bad_bodies_are_told_what_is_wrong(http: httpx.AsyncClient, body: bytes, status: int) -> None:
    headers = {**bearer(ALICE), "Content-Type": "application/json"}
    answer = await http.post("/knowledge-bases", content=body, headers=headers)

    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer x.y.z"}, {"Authorization": "Basic YTpi"}])
async def test_without_a_token_nothing_is_told(http: httpx.AsyncClient, headers: dict[str, str]) -> None:
    answer = await http.get("/knowledge-bases", headers=headers)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["code"] in {"token_missing", "token_invalid"}


async def test_the_trace_of_the_caller_is_named_in_a_problem(http: httpx.AsyncClient) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {**bearer(ALICE), "traceparent": f"00-{trace}-b7ad6b7169203331-01"}

    answer = await http.get(f"/knowledge-bases/{uuid4()}", headers=headers)

    assert answer.json()["trace_id"] == trace


async def test_unknown_routes_and_methods_are_problems_too(http: httpx.AsyncClient) -> None:
    for method, path, status in [("GET", "/nowhere", 404), ("PATCH", "/knowledge-bases", 405)]:
        answer = await http.request(method, path)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"


def _without_trace(answer: httpx.Response) -> dict[str, object]:
    return {key: value for key, value in answer.json().items() if key != "trace_id"}
