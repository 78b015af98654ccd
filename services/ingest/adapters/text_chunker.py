import asyncio
from pathlib import Path

from services.ingest.adapters.splitter import TokenizerSplitter
from services.ingest.domain.chunking import chunk
from services.ingest.domain.extraction import ChunkDraft, Part, assemble


class TextChunker:
    """Cuts the text of records, in a thread: it is small and comes from services, not from strangers."""

    def __init__(self, tokenizer_path: Path) -> None:
        self._splitter = TokenizerSplitter(tokenizer_path)

    async def chunk_text(self, text: str) -> list[ChunkDraft]:
        return await asyncio.to_thread(chunk, assemble([Part("text", text)]), self._splitter)
