"""The encoder on a GPU: the bundled model, and random weights of the shape of Qwen3-Embedding-0.6B.

Random weights cost what trained ones do. The tokenizer is that of the bundled model, so that both read the same
tokens.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Final

import torch
from transformers import AutoModel, Qwen3Config

from deploy.embedded.benchmarks.encoding import measure
from deploy.embedded.benchmarks.prose import make_texts
from deploy.embedded.benchmarks.report import log
from kbmesh.models import BUNDLED_MODEL, bundled_model_path

TEXTS: Final = 4096
ROUNDS: Final = 5
SLICES: Final = ((8, 1024), (32, 16_384), (128, 65_536))
"""Texts and tokens."""
QWEN: Final = Qwen3Config(
    vocab_size=151_669,
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=32_768,
    tie_word_embeddings=True,
)
"""https://huggingface.co/Qwen/Qwen3-Embedding-0.6B/blob/main/config.json"""
TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
MODULES: Final = ("Transformer", "Pooling", "Normalize")


def bench(*, quick: bool) -> None:
    if not torch.cuda.is_available():
        log("gpu: torch sees no GPU here, left out")
        return
    texts = make_texts(256 if quick else TEXTS, seed=1)
    with tempfile.TemporaryDirectory(prefix="kbmesh-bench-") as directory:
        shaped = make_model(Path(directory), QWEN)
        for model, folder in ((BUNDLED_MODEL, bundled_model_path()), ("Qwen3-Embedding-0.6B, random", shaped)):
            for size, tokens in SLICES:
                measure(
                    folder,
                    texts,
                    rounds=1 if quick else ROUNDS,
                    device="cuda",
                    model=model,
                    slice_size=size,
                    slice_tokens=tokens,
                    prefix="gpu_",
                )


def make_model(folder: Path, config: Qwen3Config) -> Path:
    """A sentence-transformers model with random weights that pools the last token, as Qwen3-Embedding does."""
    torch.manual_seed(1)
    AutoModel.from_config(config).to(torch.bfloat16).save_pretrained(folder)  # type: ignore[no-untyped-call]
    for name in TOKENIZER_FILES:
        shutil.copy(bundled_model_path() / name, folder)
    pooling = {"word_embedding_dimension": config.hidden_size, "pooling_mode_lasttoken": True}
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{name}" if number else "",
            "type": f"sentence_transformers.models.{name}",
        }
        for number, name in enumerate(MODULES)
    ]
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "2_Normalize").mkdir()
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder
