"""What the cards of well-known models say and their files do not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from services.embedder.domain.encoding import InputType


@dataclass(frozen=True, slots=True)
class ModelDescription:
    prompts: Mapping[InputType, str] = field(default_factory=dict)
    """What a text begins with, where the card asks for it; used when the files give no prompts."""
    trained_dimensions: Sequence[int] = ()
    """To which a vector may be cut (Matryoshka training); its own number is not among them."""


def describe(model: str) -> ModelDescription:
    """By its published name, with or without the owner. An unknown model has an empty description."""
    return _MODELS.get(model.rsplit("/", 1)[-1].lower(), ModelDescription())


def trained_dimensions(model: str) -> Sequence[int]:
    """Dimensions to which vectors of `model` may be cut; empty if it is not known to be trained for that."""
    return describe(model).trained_dimensions


def _prompts(query: str, document: str = "") -> dict[InputType, str]:
    return {InputType.QUERY: query, InputType.DOCUMENT: document}


_E5: Final = ModelDescription(_prompts("query: ", "passage: "))
_SEARCH_PASSAGES: Final = _prompts("Represent this sentence for searching relevant passages: ")
_BGE: Final = ModelDescription(_SEARCH_PASSAGES)
_QWEN3_PROMPTS: Final = _prompts(
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
)

_MODELS: Final[Mapping[str, ModelDescription]] = {
    "e5-small": _E5,
    "e5-base": _E5,
    "e5-large": _E5,
    "e5-small-v2": _E5,
    "e5-base-v2": _E5,
    "e5-large-v2": _E5,
    "multilingual-e5-small": _E5,
    "multilingual-e5-base": _E5,
    "multilingual-e5-large": _E5,
    "bge-small-en": _BGE,
    "bge-base-en": _BGE,
    "bge-large-en": _BGE,
    "bge-small-en-v1.5": _BGE,
    "bge-base-en-v1.5": _BGE,
    "bge-large-en-v1.5": _BGE,
    "qwen3-embedding-0.6b": ModelDescription(_QWEN3_PROMPTS, range(32, 1024)),
    "qwen3-embedding-4b": ModelDescription(_QWEN3_PROMPTS, range(32, 2560)),
    "qwen3-embedding-8b": ModelDescription(_QWEN3_PROMPTS, range(32, 4096)),
    "mxbai-embed-large-v1": ModelDescription(_SEARCH_PASSAGES, (512,)),
    "nomic-embed-text-v1.5": ModelDescription(_prompts("search_query: ", "search_document: ")),
    "snowflake-arctic-embed-m-v1.5": ModelDescription(_SEARCH_PASSAGES, (256,)),
    "snowflake-arctic-embed-m-v2.0": ModelDescription(_prompts("query: "), (256,)),
    "snowflake-arctic-embed-l-v2.0": ModelDescription(_prompts("query: "), (256,)),
    "embeddinggemma-300m": ModelDescription(
        _prompts("task: search result | query: ", "title: none | text: "), (128, 256, 512)
    ),
    "gte-multilingual-base": ModelDescription(trained_dimensions=range(128, 768)),
    "text-embedding-3-small": ModelDescription(trained_dimensions=(512,)),
    "text-embedding-3-large": ModelDescription(trained_dimensions=(256, 1024)),
}
"""gte and all-MiniLM want no prompt, bge-m3 neither. Where a card names no list of dimensions, those that it
shows figures for."""
