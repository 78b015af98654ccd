from services.embedder.handlers.embedding import (
    embed_chunks,
    embed_many,
    embed_texts,
    encode,
    find_model,
    give_up,
    list_models,
)
from services.embedder.handlers.filling import check_model, fill

__all__ = [
    "check_model",
    "embed_chunks",
    "embed_many",
    "embed_texts",
    "encode",
    "fill",
    "find_model",
    "give_up",
    "list_models",
]
