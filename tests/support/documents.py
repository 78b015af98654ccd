"""Documents as a caller of the gateway makes them, and what the extractor does with them."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import httpx

from kbmesh.messaging import Topics
from kbmesh.postgres import Pool
from services.ingest.adapters.postgres import PostgresDocuments
from services.ingest.domain.extraction import ChunkDraft
from services.ingest.handlers.turns import Turns


async def upload(http: httpx.AsyncClient, kb: str, data: bytes, filename: str = "policy.txt") -> str:
    """The id of the document."""
    answer = await http.post(f"/knowledge-bases/{kb}/documents", params={"filename": filename}, content=data)
    assert answer.status_code == 202, answer.text
    document: str = answer.json()["document_id"]
    return document


def receipt(**counts: int) -> dict[str, object]:
    """Of a deletion that left nothing; what is not said is 0."""
    names = ("documents", "chunks", "vectors", "objects", "documents_in_progress", "messages_fenced")
    assert counts.keys() <= set(names)
    return {
        **dict.fromkeys(names, 0),
        **counts,
        "left": {"documents": 0, "chunks": 0, "vectors": 0},
        "objects_left": 0,
        "objects_pending": 0,
        "verified": True,
    }


def drafts(*texts: str) -> list[ChunkDraft]:
    return [ChunkDraft(n, text, 0, len(text), 3, 1, ("Heading",)) for n, text in enumerate(texts)]


async def extract(pool: Pool, document: str, revision: int, found: Sequence[ChunkDraft]) -> bool:
    """False: fenced."""
    documents = PostgresDocuments(pool, Topics("kbmesh"))
    claimed = await documents.begin(UUID(document), revision)
    return claimed is not None and await documents.save_chunks(claimed, found)


def one_at_a_time() -> Turns:
    """Turns of an extractor with one process."""

    async def grow() -> None:
        pass

    return Turns(1, large_bytes=1, grow=grow, stop=asyncio.Event())
