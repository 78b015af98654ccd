from services.embedder.handlers.embedding import embed_chunks, embed_texts, encode, give_up

__all__ = ["embed_chunks", "embed_texts", "encode", "give_up"]
