import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

from kbmesh.errors import Misconfigured
from services.embedder.domain.encoding import InputType
from services.embedder.domain.models import describe

MAX_TOKENS: Final = 512

Pooling = Literal["mean", "cls", "lasttoken"]

_PROMPT_NAMES: Final = {InputType.QUERY: ("query",), InputType.DOCUMENT: ("document", "passage", "corpus")}
"""Those that sentence-transformers looks for."""
_COUNT_FROM_PADDING: Final = {"camembert", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl"}
"""Model types whose first token has the position behind the id of padding, instead of 0."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A sentence-transformers model on disk, as far as its configuration goes."""

    path: Path
    """Of weights and tokenizer."""
    dimensions: int
    max_tokens: int
    pad_token_id: int
    pooling: Pooling
    prompts: Mapping[InputType, str]
    """What is put before a text."""
    lower_case: bool
    """Whether a text is made lower case before the tokenizer's own rules."""


def read_model_folder(path: Path, *, name: str | None = None) -> ModelFolder:
    """
    Args:
        name: what the model is called where it was published; None: the name of the folder.

    Raises:
        Misconfigured: not a sentence-transformers model, one that needs more than transformer, pooling, norm, or
            one that brings code of its own (model_missing, model_unsupported,
            model_unsafe).
    """
    try:
        return _read_folder(path, name or path.resolve().name)
    except (AttributeError, KeyError, TypeError) as error:
        raise _unsupported(path, f"its configuration has gaps ({type(error).__name__}: {error})") from error


def _read_folder(path: Path, name: str) -> ModelFolder:
    transformer, pooling = _modules(path)
    config = _read(transformer, "config.json")
    if "auto_map" in config:
        raise unsafe(path, "its config.json names code of its own (auto_map)")
    if "quantization_config" in config:
        raise _unsupported(path, "its weights are quantised")
    if (transformer / "adapter_config.json").exists():
        raise _unsupported(path, "it is an adapter to another model")
    pooling_config = _read(pooling, "config.json")
    if not pooling_config.get("include_prompt", True):
        raise _unsupported(path, "its pooling leaves the prompt out")
    pad_token_id = config.get("pad_token_id") or 0
    positions = config.get("max_position_embeddings", MAX_TOKENS)
    if config.get("model_type") in _COUNT_FROM_PADDING:
        positions -= pad_token_id + 1
    return ModelFolder(
        path=transformer,
        dimensions=pooling_config.get("embedding_dimension") or pooling_config["word_embedding_dimension"],
        # Not the tokenizer's own limit and not sentence_bert_config.json: for many models both stop far short of
        # what the weights were made for.
        max_tokens=min(MAX_TOKENS, positions),
        pad_token_id=pad_token_id,
        pooling=_pooling(path, pooling_config),
        prompts=_prompts(path, name),
        lower_case=_read(transformer, "sentence_bert_config.json", default={}).get("do_lower_case", False),
    )


def _modules(path: Path) -> tuple[Path, Path]:
    """Folders of the transformer and of the pooling."""
    modules = _read(path, "modules.json")
    types = [module["type"] for module in modules]
    for strange in (name for name in types if not name.startswith("sentence_transformers.")):
        raise unsafe(path, f"its modules.json names code of its own ({strange})")
    steps = [name.rsplit(".", 1)[-1] for name in types]
    if steps not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise _unsupported(path, f"its modules are {', '.join(steps)}")
    return path / modules[0]["path"], path / modules[1]["path"]


def _pooling(path: Path, config: Mapping[str, Any]) -> Pooling:
    flags = {
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_cls_token": "cls",
        "pooling_mode_lasttoken": "lasttoken",
    }
    modes = [flags.get(name, name) for name, value in config.items() if value is True and "pooling_mode_" in name]
    if "pooling_mode" in config:
        modes = [config["pooling_mode"]]
    if len(modes) != 1 or modes[0] not in get_args(Pooling):
        raise _unsupported(path, f"its pooling is {', '.join(map(str, modes)) or 'not given'}")
    return cast(Pooling, modes[0])


def _prompts(path: Path, name: str) -> Mapping[InputType, str]:
    given = _read(path, "config_sentence_transformers.json", default={}).get("prompts") or {}
    prompts = {
        input_type: next((given[name] for name in names if given.get(name)), "")
        for input_type, names in _PROMPT_NAMES.items()
    }
    # sentence-transformers writes empty ones for a model that was published without any.
    return prompts if any(prompts.values()) else describe(name).prompts


def _unsupported(path: Path, why: str) -> Misconfigured:
    return Misconfigured(
        f"the model in {path} is not supported: {why} "
        "(supported: transformer; mean, cls or lasttoken pooling; norm)",
        code="model_unsupported",
    )


def unsafe(path: Path, why: str) -> Misconfigured:
    return Misconfigured(f"the model in {path} is refused: {why}", code="model_unsafe")


def _read(path: Path, name: str, *, default: Any = None) -> Any:
    try:
        return json.loads((path / name).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        if default is not None:
            return default
        raise Misconfigured(
            f"{path} is not a sentence-transformers model: no {name}", code="model_missing"
        ) from None
    except ValueError as error:
        raise Misconfigured(f"{path / name} is not JSON", code="model_broken") from error
