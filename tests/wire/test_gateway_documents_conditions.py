"""Requests that hold only for the document as the caller has seen it."""

import asyncio
from pathlib import Path

import httpx
import pytest

from kbmesh.postgres import Pool
from tests.support.documents import drafts, extract, upload
from tests.support.gateway import BOB, bearer, stored_files

CHANGES = [("DELETE", ""), ("POST", "/reprocess"), ("POST", "/reembed")]


@pytest.fixture
async def path(http: httpx.AsyncClient, kb: str) -> str:
    return f"/documents/{await upload(http, kb, b'text')}"


async def test_a_tag_changes_with_the_document_and_not_without(
    http: httpx.AsyncClient, pool: Pool, path: str
) -> None:
    first, same = [(await http.get(path)).headers["etag"] for _ in range(2)]
    await extract(pool, path.removeprefix("/documents/"), 1, drafts("one"))
    later = (await http.get(path)).headers["etag"]
    assert first == same != later


async def test_a_document_that_the_caller_has_is_not_sent_again(http: httpx.AsyncClient, path: str) -> None:
    tag = (await http.get(path)).headers["etag"]
    for condition, status in [(tag, 304), (f"W/{tag}", 304), (f'"x", {tag}', 304), ("*", 304), ('"x"', 200)]:
        answer = await http.get(path, headers={"If-None-Match": condition})
        assert (answer.status_code, answer.headers["etag"]) == (status, tag)


@pytest.mark.parametrize(("method", "action"), CHANGES)
@pytest.mark.parametrize("condition", ["{tag}", "W/{tag}", '"x", {tag}', "*"])
async def test_a_change_goes_through_for_the_state_that_was_seen(
    http: httpx.AsyncClient, pool: Pool, path: str, method: str, action: str, condition: str
) -> None:
    await extract(pool, path.removeprefix("/documents/"), 1, drafts("one"))
    tag = (await http.get(path)).headers["etag"]
    answer = await http.request(method, path + action, headers={"If-Match": condition.format(tag=tag)})
    assert answer.is_success, answer.text


@pytest.mark.parametrize(("method", "action"), CHANGES)
async def test_a_change_is_refused_when_the_document_has_changed(
    http: httpx.AsyncClient, kb: str, path: str, store_dir: Path, method: str, action: str
) -> None:
    stale = (await http.get(path)).headers["etag"]
    await upload(http, kb, b"newer")

    answer = await http.request(method, path + action, headers={"If-Match": stale})

    assert (answer.status_code, answer.json()["code"]) == (412, "precondition_failed")
    assert (await http.get(path)).json()["revision"] == 2
    assert b"newer" in [file.read_bytes() for file in stored_files(store_dir)]


async def test_a_tag_that_is_no_tag_never_matches(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.delete(path, headers={"If-Match": "nonsense"})).status_code == 412


async def test_of_two_clients_that_saw_the_same_one_wins(http: httpx.AsyncClient, path: str) -> None:
    tag = (await http.get(path)).headers["etag"]
    answers = await asyncio.gather(*(http.post(f"{path}/reprocess", headers={"If-Match": tag}) for _ in range(2)))
    assert sorted(answer.status_code for answer in answers) == [202, 412]
    [won] = [answer for answer in answers if answer.status_code == 202]
    assert won.headers["etag"] == (await http.get(path)).headers["etag"]


@pytest.mark.parametrize(("method", "action"), CHANGES)
async def test_a_stranger_learns_nothing_from_a_condition(
    http: httpx.AsyncClient, path: str, method: str, action: str
) -> None:
    tag = (await http.get(path)).headers["etag"]
    for condition in (tag, '"x"'):
        answer = await http.request(method, path + action, headers={"If-Match": condition, **bearer(BOB)})
        assert answer.status_code == 404
