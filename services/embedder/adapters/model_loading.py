"""Reading weights and tokenizer from a folder, without ever running code from it or reaching for the network."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, normalizers
from transformers import AutoConfig, AutoModel
from transformers.utils import logging as transformers_logging

from kbmesh.errors import Misconfigured
from services.embedder.adapters.model_folder import ModelFolder, unsafe


def load_tokenizer(folder: ModelFolder) -> Any:
    """Cuts at the limit of `folder`, does not pad, and adds the special tokens that its file says.

    Raises:
        Misconfigured: no tokenizer.json (model_missing), or one that cannot be read (model_broken).
    """
    file = folder.path / "tokenizer.json"
    if not file.is_file():
        raise Misconfigured(f"the model in {folder.path} has no tokenizer.json", code="model_missing")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise _broken(folder, f"its tokenizer.json cannot be read: {error}") from error
    if folder.lower_case:
        own = [tokenizer.normalizer] if tokenizer.normalizer else []
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
    # The file may bring padding and a limit of its own, often 128 tokens.
    tokenizer.no_padding()
    tokenizer.enable_truncation(folder.max_tokens)
    return tokenizer


def load_model(folder: ModelFolder, *, tokens: int) -> Any:
    """In fp32, on the CPU, ready to be called.

    Args:
        tokens: how many the tokenizer knows.

    Raises:
        Misconfigured: no weights (model_missing), weights in a pickle only (model_unsafe), or weights that cannot
            be read, are of a type that transformers does not know, or do not fit the configuration or the
            tokenizer (model_broken).
    """
    _check_weights(folder.path)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call] # transformers leaves it untyped
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        config = AutoConfig.from_pretrained(folder.path, trust_remote_code=False, local_files_only=True)
        # transformers would fetch and run an implementation that the file names; without one it takes torch's own.
        config._attn_implementation = None
        # Texts are read once, none is continued.
        config.use_cache = False
        model, found = AutoModel.from_pretrained(
            folder.path,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            # Both are looked at below, together with weights that are not there at all.
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except Exception as error:  # files can be wrong in many ways, and those errors have no common base
        raise _broken(folder, f"{type(error).__name__}: {error}") from error
    misfits = {name for name, *_ in found["mismatched_keys"]} | found["missing_keys"]
    # What stands on top of the last layer is not used, and left out of many files.
    if misfits := sorted(name for name in misfits if not name.startswith("pooler.")):
        raise _broken(folder, f"{len(misfits)} of its weights are missing or of another shape ({misfits[0]})")
    if tokens > (known := model.get_input_embeddings().num_embeddings):
        raise _broken(folder, f"its tokenizer knows {tokens} tokens, its weights {known}")
    return model.eval()


def _check_weights(path: Path) -> None:
    if any((path / f"model.safetensors{end}").is_file() for end in ("", ".index.json")):
        return
    if pickles := sorted(file.name for end in ("bin", "pt", "pth") for file in path.glob(f"*.{end}")):
        raise unsafe(path, f"{pickles[0]} is a pickle, which can run code; convert it to model.safetensors")
    raise Misconfigured(f"the model in {path} has no model.safetensors", code="model_missing")


def _broken(folder: ModelFolder, why: str) -> Misconfigured:
    return Misconfigured(f"the model in {folder.path} cannot be loaded: {why}", code="model_broken")
