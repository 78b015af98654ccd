import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from kbmesh.errors import Misconfigured

MAX_TOKENS: Final = 512

Pooling = Literal["mean", "cls"]


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A sentence-transformers model on disk, as far as its configuration goes."""

    path: Path
    dimensions: int
    max_tokens: int
    pad_token_id: int
    pooling: Pooling
    prompts: Mapping[str, str]
    """What is put before a text, by input type."""


def read_model_folder(path: Path) -> ModelFolder:
    """
    Raises:
        Misconfigured: not a sentence-transformers model, or one that needs more than transformer, pooling, norm.
    """
    config = _read(path, "config.json")
    modules = _read(path, "modules.json")
    steps = [module["type"].rsplit(".", 1)[-1] for module in modules]
    if steps not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise _unsupported(path, f"its modules are {', '.join(steps)}")
    pooling_config = _read(path, f"{modules[1]['path']}/config.json")
    if not pooling_config.get("include_prompt", True):
        raise _unsupported(path, "its pooling leaves the prompt out")
    return ModelFolder(
        path=path,
        dimensions=config["hidden_size"],
        # Not the tokenizer's own limit and not sentence_bert_config.json: for many models both stop far short of
        # what the weights were made for.
        max_tokens=min(MAX_TOKENS, config["max_position_embeddings"]),
        pad_token_id=config.get("pad_token_id") or 0,
        pooling=_pooling(path, pooling_config),
        prompts=_read(path, "config_sentence_transformers.json", default={}).get("prompts", {}),
    )


def _pooling(path: Path, config: Mapping[str, Any]) -> Pooling:
    flags = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    modes = [flags.get(name, name) for name, value in config.items() if value is True and "pooling_mode_" in name]
    if "pooling_mode" in config:
        modes = [config["pooling_mode"]]
    if modes not in (["mean"], ["cls"]):
        raise _unsupported(path, f"its pooling is {', '.join(map(str, modes)) or 'not given'}")
    return cast(Pooling, modes[0])


def _unsupported(path: Path, why: str) -> Misconfigured:
    return Misconfigured(
        f"the model in {path} is not supported: {why} (supported: transformer, mean or cls pooling, norm)",
        code="model_unsupported",
    )


def _read(path: Path, name: str, *, default: Any = None) -> Any:
    try:
        return json.loads((path / name).read_text("utf-8"))
    except FileNotFoundError:
        if default is not None:
            return default
        raise Misconfigured(
            f"{path} is not a sentence-transformers model: no {name}", code="model_missing"
        ) from None
    except ValueError as error:
        raise Misconfigured(f"{path / name} is not JSON", code="model_unsupported") from error
