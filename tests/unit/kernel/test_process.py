import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, os, sys
from contextlib import asynccontextmanager
from pydantic import BaseModel, Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from kbmesh.errors import Misconfigured, Unavailable
from kbmesh.process import run

class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="KBMESH_TEST_", frozen=True)
    log_level: str = "info"
    secret: str
    fail: str = ""
    slow: bool = False

@asynccontextmanager
async def bootstrap(settings):
    if settings.fail == "misconfigured":
        raise Misconfigured("choose another port")
    if settings.fail == "unavailable":
        raise Unavailable("no database")
    if settings.fail == "bug":
        text = "the text of a document"
        try:
            raise KeyError(text) from OSError(28, "No space left on device")
        except KeyError as error:
            raise ExceptionGroup(text, [error]) from None
    if settings.slow:
        print("starting", flush=True)
        try:
            await asyncio.sleep(3600)
        finally:
            print("given up", flush=True)
    print("started", "KBMESH_TEST_SECRET" in os.environ, flush=True)
    yield
    print("closed", flush=True)

if __name__ == "__main__":
    run("test", Settings, bootstrap)
"""


def start(tmp_path: Path, **env: str) -> subprocess.Popen[str]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    return subprocess.Popen(
        [sys.executable, program],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_closes_everything_in_order_and_exits_with_0(tmp_path: Path, signum: int) -> None:
    with start(tmp_path, KBMESH_TEST_SECRET="s3cr3t") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started False\n"
        process.send_signal(signum)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert output.startswith("closed\n")
    assert json.loads(output.splitlines()[-1])["event"] == "service_stopped"


def test_a_signal_during_the_start_gives_it_up(tmp_path: Path) -> None:
    with start(tmp_path, KBMESH_TEST_SECRET="s3cr3t", KBMESH_TEST_SLOW="true") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "starting\n"
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert output.startswith("given up\n")
    assert json.loads(output.splitlines()[-1])["event"] == "service_stopped"


@pytest.mark.parametrize(("fail", "code"), [("misconfigured", 2), ("unavailable", 1), ("bug", 1)])
def test_a_failure_exits_with_a_code_and_one_line_that_says_why(tmp_path: Path, fail: str, code: int) -> None:
    with start(tmp_path, KBMESH_TEST_SECRET="s3cr3t", KBMESH_TEST_FAIL=fail) as process:
        output, _ = process.communicate(timeout=30)
    assert process.returncode == code
    [line] = output.splitlines()
    assert json.loads(line)["event"] == "service_failed"
    assert "s3cr3t" not in output
    assert "the text of a document" not in output


def test_an_unforeseen_error_is_told_by_type_and_place_and_not_in_words_that_may_quote_a_document(
    tmp_path: Path,
) -> None:
    with start(tmp_path, KBMESH_TEST_SECRET="s3cr3t", KBMESH_TEST_FAIL="bug") as process:
        output, _ = process.communicate(timeout=30)
    [group] = json.loads(output)["exception"]
    [[lookup, cause]] = group["errors"]
    assert [error["type"] for error in (group, lookup, cause)] == [
        "builtins.ExceptionGroup",
        "builtins.KeyError",
        "builtins.OSError",
    ]
    assert lookup["frames"][-1].endswith(" bootstrap")
    assert cause["message"] == "[Errno 28] No space left on device"
    assert "the text of a document" not in output


def test_a_missing_setting_is_named(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 2
    assert json.loads(output)["problems"] == ["SECRET: Field required"]
