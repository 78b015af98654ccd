"""Tiny random models, saved by sentence-transformers itself, so that its real files are read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModel,
    BertConfig,
    MPNetConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    XLMRobertaConfig,
)

Family = Literal["bert", "mpnet", "qwen3", "xlm-roberta"]

POSITIONS = 64
"""Tokens that each of them can read."""
_SPECIAL = ["[SEP]", "[PAD]", "[UNK]", "[CLS]"]


def save_model(
    path: Path,
    *,
    family: Family = "bert",
    pooling: Literal["mean", "cls", "lasttoken"] = "mean",
    prompts: Mapping[str, str] | None = None,
    padding_side: Literal["left", "right"] = "right",
    dimensions: int = 32,
) -> Path:
    """Writes a sentence-transformers folder of two layers with random weights, the same each time."""
    tokenizer = _tokenizer(family)
    raw = path / "raw"
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call] # transformers leaves it untyped
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", padding_side=padding_side
    ).save_pretrained(raw)
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = AutoModel.from_config(_config(family, tokenizer.get_vocab_size(), dimensions))  # type: ignore[no-untyped-call]
    model.save_pretrained(raw)
    folder = path / "model"
    SentenceTransformer(
        modules=[Transformer(str(raw)), Pooling(dimensions, pooling), Normalize()],
        device="cpu",
        prompts=dict(prompts or {}),
    ).save(str(folder), create_model_card=False)
    return folder


def _tokenizer(family: Family) -> Any:
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([], trainers.BpeTrainer(special_tokens=_SPECIAL, initial_alphabet=alphabet))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [SEP]" if family == "qwen3" else "[CLS] $A [SEP]", special_tokens=[("[CLS]", 3), ("[SEP]", 0)]
    )
    return tokenizer


def _config(family: Family, vocabulary: int, dimensions: int) -> Any:
    sizes: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": dimensions,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "pad_token_id": 1,
        "initializer_range": 0.5,
    }
    if family == "bert":
        return BertConfig(**sizes, max_position_embeddings=POSITIONS)
    if family == "mpnet":
        return MPNetConfig(**sizes, max_position_embeddings=POSITIONS + 2)
    if family == "xlm-roberta":
        return XLMRobertaConfig(**sizes, max_position_embeddings=POSITIONS + 2)
    return Qwen3Config(**sizes, max_position_embeddings=POSITIONS, num_key_value_heads=2, head_dim=8)
