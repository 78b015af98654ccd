from services.embedder.handlers.embedding import embed_chunks, embed_texts, encode, give_up
from services.embedder.handlers.filling import check_model, fill

__all__ = ["check_model", "embed_chunks", "embed_texts", "encode", "fill", "give_up"]
