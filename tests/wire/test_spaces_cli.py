"""`kbmesh spaces` against a real server."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kbmesh.auth import AuthSettings
from kbmesh.cli import main
from services.embedder.entrypoints.spaces_grpc import SpaceServicer
from tests.support.rpc import OFF
from tests.support.spaces import ACTIVE, CHUNKS, SpacesInMemory, serving_spaces, word_models
from tests.support.tokens import SECRET, token

WIDE = "more_words_512"


class Shell:
    """Runs `kbmesh spaces …` with an environment of its own."""

    def __init__(self, target: str, **environment: str) -> None:
        self._environment = {"KBMESH_EMBEDDER_TARGET": target, "KBMESH_TOKEN": None, **environment}

    async def run(self, *arguments: str) -> Result:
        return await asyncio.to_thread(
            CliRunner().invoke, main, ["spaces", *arguments], env=self._environment, catch_exceptions=False
        )

    async def done(self, *arguments: str) -> str:
        result = await self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    async def json(self, *arguments: str) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(await self.done(*arguments, "--json"))
        return parsed

    async def refused(self, *arguments: str, exit_code: int = 1) -> str:
        result = await self.run(*arguments)
        assert (result.exit_code, result.stdout) == (exit_code, "")
        return result.stderr


@pytest.fixture
def store() -> SpacesInMemory:
    return SpacesInMemory(ACTIVE, word_models(), CHUNKS)


def servicer_of(store: SpacesInMemory) -> SpaceServicer:
    servicer = SpaceServicer()
    servicer.open(store, word_models())
    return servicer


@pytest.fixture
async def shell(store: SpacesInMemory) -> AsyncIterator[Shell]:
    async with serving_spaces(servicer_of(store), OFF) as target:
        yield Shell(target)


async def test_a_model_is_changed_and_changed_back(shell: Shell, store: SpacesInMemory) -> None:
    assert f"{WIDE} is being filled: {len(CHUNKS)} chunks" in await shell.done("create", "more-words")
    assert (await shell.done("list")).splitlines() == [
        "SPACE           MODEL       DIMENSIONS  STATUS    AVAILABLE  CREATED (UTC)",
        "words_256       words       256         active    yes        2026-01-01 00:00",
        "more_words_512  more-words  512         building  yes        2026-01-01 00:01",
    ]
    assert (await shell.done("status")).splitlines() == [
        "SPACE           STATUS    DONE    FILLED  WAITING  ETA  FAILED  INDEX",
        "words_256       active    100.0%  60      0        -    0       yes",
        "more_words_512  building  0.0%    0       60       -    0       no",
    ]
    assert await shell.refused("activate", WIDE) == (
        "Error: space_filling: more_words_512 is being filled for the first time: 60 chunks wait\n"
    )
    store.fill(WIDE)
    assert "recall    1.000, active space 1.000 (of 50 judged)" in await shell.done("check", WIDE)
    activated = await shell.done("activate", WIDE)
    assert "queries   50\noverlap   " in activated
    assert activated.endswith(f"{WIDE} is active\n")
    assert await shell.done("rollback") == f"{ACTIVE.id} is active\n"
    assert await shell.done("drop", WIDE) == f"{WIDE} is gone, with {len(CHUNKS)} vectors\n"


async def test_scripts_read_json(shell: Shell, store: SpacesInMemory) -> None:
    created = await shell.json("create", "more-words", "--dimensions", "500")
    assert (created["space"]["space_id"], len(created["warnings"])) == ("more_words_500", 1)
    store.fill("more_words_500")
    for command in ("list", "status"):
        [active, building] = (await shell.json(command))["spaces"]
        assert (active["status"], building["status"]) == ("SPACE_STATUS_ACTIVE", "SPACE_STATUS_BUILDING")
        assert (building["filled"], building["waiting"], building["eta_s"]) == (len(CHUNKS), 0, 0)
    report = (await shell.json("check", "more_words_500"))["report"]
    assert (report["queries"], report["judged"]) == (50, 50)
    activated = await shell.json("activate", "more_words_500")
    assert (activated["report"], activated["space"]["status"]) == (report, "SPACE_STATUS_ACTIVE")
    assert (await shell.json("rollback"))["space"]["space_id"] == ACTIVE.id
    assert (await shell.json("drop", "more_words_500"))["space"]["space_id"] == "more_words_500"


async def test_a_warning_does_not_get_between_the_output(shell: Shell) -> None:
    result = await shell.run("create", "words", "--dimensions", "64")
    assert result.stdout == f"words_64 is being filled: {len(CHUNKS)} chunks\n"
    assert result.stderr.startswith("warning: words has 256 dimensions")


async def test_judged_queries_come_from_a_file(shell: Shell, store: SpacesInMemory, tmp_path: Path) -> None:
    await shell.done("create", "blind")
    store.fill("blind_8")
    file = tmp_path / "queries.jsonl"
    lines = [{"query": "topic40", "relevant": ["source-40"], "id": 1}, {"query": "topic41\u2028topic42"}]
    file.write_text(
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines) + "\n", encoding="utf-8"
    )
    checked = await shell.done("check", "blind_8", "--queries", str(file))
    assert "queries   2\n" in checked
    assert "recall    0.000, active space 1.000 (of 1 judged)\n" in checked
    sentence = await shell.refused("activate", "blind_8", "--queries", str(file))
    assert sentence.startswith("Error: shadow_check_failed: blind_8 failed the shadow check")
    assert "topic" not in sentence
    assert "blind_8 is active" in await shell.done("activate", "blind_8", "--queries", str(file), "--force")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "holds no query"),
        (b"\xff\xfe", "is not a text file"),
        (b'{"query": "private text"}\n{"query": "private', "line 2"),
        (b'{"question": "private text"}', "line 1"),
        (b'{"query": "private text", "relevant": "one"}', "line 1"),
        (b'{"query": 1}', "line 1"),
        (b'{"query": " "}', "line 1"),
        (b'["private text"]', "line 1"),
        (b"[" * 100_000, "line 1"),
    ],
    ids=["empty", "no text", "cut", "no query", "one id", "number", "blank", "list", "deep"],
)
async def test_a_bad_file_of_queries_is_a_mistake_of_usage(
    shell: Shell, tmp_path: Path, content: bytes, complaint: str
) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_bytes(content)
    sentence = await shell.refused("check", WIDE, "--queries", str(file), exit_code=2)
    assert complaint in sentence
    assert "private" not in sentence


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", WIDE, "--queries", "/nowhere.jsonl"),
        ("check",),
        ("create", "words", "--dimensions", "0"),
        ("create", "words", "--dimensions", "many"),
        ("explode",),
    ],
    ids=" ".join,
)
async def test_mistakes_of_usage_exit_with_2(shell: Shell, arguments: tuple[str, ...]) -> None:
    assert "Usage: " in await shell.refused(*arguments, exit_code=2)


async def test_what_the_embedder_refuses_is_told_with_its_code(shell: Shell) -> None:
    assert await shell.refused("create", "unheard-of") == (
        "Error: unknown_model: the models that are configured are words, more-words, blind\n"
    )
    assert (await shell.refused("drop", ACTIVE.id)).startswith("Error: space_is_active: ")


async def test_a_server_that_is_not_there_is_told(store: SpacesInMemory) -> None:
    async with serving_spaces(servicer_of(store), OFF) as target:
        pass
    sentence = await Shell(target).refused("list")
    assert sentence.startswith(f"Error: unavailable: {target}: ")


async def test_the_token_of_the_environment_is_sent(store: SpacesInMemory) -> None:
    auth = AuthSettings.model_validate({"secret": SECRET})
    async with serving_spaces(servicer_of(store), auth) as target:
        assert (await Shell(target).refused("list")).startswith("Error: token_missing: ")
        editor, admin = (token(roles=[role]).removeprefix("Bearer ") for role in ("editor", "admin"))
        assert (await Shell(target, KBMESH_TOKEN=editor).refused("list")).startswith("Error: not_an_admin: ")
        assert ACTIVE.id in await Shell(target, KBMESH_TOKEN=admin).done("list")


async def test_watching_ends_once_a_space_is_filled(
    shell: Shell, store: SpacesInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shell.done("create", "more-words")
    monkeypatch.setattr("time.sleep", lambda _: store.fill(WIDE))
    first, last = map(json.loads, (await shell.done("status", "--watch", "--json")).splitlines())
    assert [space["indexed"] for space in first["spaces"]] == [True, False]
    assert [space["indexed"] for space in last["spaces"]] == [True, True]
