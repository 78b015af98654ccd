"""Every import rule of pyproject.toml is broken once, in a copy, to see that it would be noticed."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]

VIOLATIONS = {
    "kbmesh/errors.py": "import services.search.settings",
    "services/search/settings.py": "import services.skills.settings",
    "services/skills/domain/registry.py": "import services.skills.handlers",
    "services/search/ports.py": "import asyncpg",
    "services/embedder/entrypoints/grpc.py": "import torch",
    "services/ingest/entrypoints/kafka.py": "import unstructured",
    "deploy/kafka/topics.py": "import services.search.settings",
}


def lint(root: Path) -> str:
    command = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run(
        [command, "--no-cache"],
        cwd=root,
        env={"PYTHONPATH": str(root), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return run.stdout + run.stderr


def test_each_rule_notices_its_violation(tmp_path: Path) -> None:
    names = [
        contract["name"]
        for contract in tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"][
            "contracts"
        ]
    ]
    for part in ("kbmesh", "services", "deploy"):
        shutil.copytree(REPOSITORY / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    assert f"Contracts: {len(names)} kept, 0 broken." in lint(tmp_path)

    for path, planted in VIOLATIONS.items():
        with (tmp_path / path).open("a") as file:
            file.write(f"\n{planted}\n")

    report = lint(tmp_path)
    assert [name for name in names if f"{name} BROKEN" not in report] == []
