"""An encoder's work, and the most of it that the machine could do."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from transformers import AutoConfig, AutoModel

from services.embedder.domain.encoding import InputType, Tokens, Vectors, shortest_first
from services.embedder.ports import Encoder
from services.embedder.settings import EmbedderSettings

SLICE: Final[int] = EmbedderSettings.model_fields["slice_size"].default
SLICE_TOKENS: Final[int] = EmbedderSettings.model_fields["slice_tokens"].default
MATRIX_S: Final = 0.3


def encode_all(
    encoder: Encoder, texts: Sequence[str], slice_size: int = SLICE, slice_tokens: int = SLICE_TOKENS
) -> Vectors:
    """As the embedder does it with texts that it has all at once: sorted by length, slice after slice."""
    tokens = encoder.tokenize(texts, InputType.DOCUMENT)
    vectors = np.empty((len(texts), encoder.dimensions), np.float32)
    for indices in shortest_first(tokens, slice_size, slice_tokens):
        vectors[indices] = encoder.encode([tokens[index] for index in indices])
    return vectors


def kept_share(tokens: list[Tokens], slice_size: int, slice_tokens: int) -> float:
    """Of the tokens that are computed, those that are no padding."""
    indices_of = shortest_first(tokens, slice_size, slice_tokens)
    slices = [[len(tokens[index]) for index in indices] for indices in indices_of]
    return sum(map(sum, slices)) / sum(len(lengths) * max(lengths) for lengths in slices)


def useful_flops(folder: Path, tokens: Sequence[Tokens]) -> float:
    """Operations that `tokens` cost without padding: for each token two per weight of a linear layer, and four per
    value of a head and token that it attends to (Narayanan et al. 2021). A causal mask saves nothing here.
    """
    config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
    with torch.device("meta"):
        model: Any = AutoModel.from_config(config)  # type: ignore[no-untyped-call] # transformers leaves it untyped
    linear = {name: part for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)}
    weights = sum(part.weight.numel() for name, part in linear.items() if "pooler" not in name)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    attention = config.num_hidden_layers * config.num_attention_heads * head
    return float(sum(2 * weights * len(text) + 4 * attention * len(text) ** 2 for text in tokens))


def matrix_flops_per_s(folder: Path, device: str, precision: str, rows: int) -> float:
    """What one plain product of the size of the model's largest reaches, for `rows` tokens."""
    config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left = torch.randn(rows, config.hidden_size).to(device, dtype)
    right = torch.randn(config.intermediate_size, config.hidden_size).to(device, dtype)
    each = 2 * left.shape[0] * right.numel()
    calls = 0
    with torch.inference_mode():
        torch.nn.functional.linear(left, right)
        _finish(device)
        started = time.perf_counter()
        while time.perf_counter() - started < MATRIX_S:
            for _ in range(16):
                torch.nn.functional.linear(left, right)
            calls += 16
            _finish(device)
    return each * calls / (time.perf_counter() - started)


def _finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
