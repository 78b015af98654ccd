"""The workers behind the gateway without a broker: events are taken from the outbox, in order, one at a time."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import asyncpg
import httpx
import numpy as np

from kbmesh.messaging import Message, Topics
from kbmesh.postgres import Pool
from services.embedder.adapters.postgres import PostgresVectorStore
from services.embedder.domain.encoding import Encoded, InputType, Lane
from services.embedder.domain.spaces import Space
from services.embedder.entrypoints.kafka import read_message
from services.embedder.handlers import embed_chunks
from services.ingest.adapters.directory import DirectoryStore
from services.ingest.adapters.postgres import PostgresDocuments
from services.ingest.domain.content_type import ContentType
from services.ingest.domain.extraction import ChunkDraft
from services.ingest.domain.headers import Origin
from services.ingest.entrypoints.kafka import DocumentEvents
from services.ingest.ports import Extractor
from tests.support.documents import drafts, one_at_a_time
from tests.support.vectors import OneSpace, open_space

TOPICS = Topics("kbmesh")
SPACE = Space("test-model", 8)


class ParagraphExtractor:
    """A chunk per paragraph; if `headed`, the model reads the file name and the category ahead of it."""

    headed = False

    async def extract(self, path: Path, content_type: ContentType, origin: Origin) -> list[ChunkDraft]:
        found = drafts(*path.read_text().strip().split("\n\n"))
        header = f"{origin.filename}, {origin.category}" if self.headed else ""
        return [replace(draft, header=header) for draft in found]


class CountingEncoder:
    """Remembers the texts that it was given."""

    dimensions = SPACE.dimensions

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def encode(self, texts: Sequence[str], input_type: InputType, lane: Lane) -> Encoded:
        self.texts += texts
        vectors = np.random.default_rng(len(self.texts)).normal(size=(len(texts), self.dimensions))
        return Encoded(vectors.astype(np.float32), (1,) * len(texts), (False,) * len(texts))


class Pipeline:
    def __init__(
        self, pool: Pool, store_dir: Path, *, extractor: Extractor | None = None, topics: Topics = TOPICS
    ) -> None:
        self._pool = pool
        self._topics = topics
        self._last = 0
        self.extractor = ParagraphExtractor()
        self.extraction = DocumentEvents(
            PostgresDocuments(pool, topics),
            DirectoryStore(store_dir),
            extractor or self.extractor,
            one_at_a_time(),
        )
        self.vectors = PostgresVectorStore(pool, status_topic=topics.status)
        self.encoder = CountingEncoder()

    async def open(self) -> None:
        await open_space(self._pool, SPACE)

    async def extract(self) -> list[Message]:
        """Handles what the documents topic holds by now; gives what the chunks topic then holds anew."""
        chunks: list[Message] = []
        while messages := await self._next():
            await self.handle([message for message in messages if message.topic == self._topics.documents])
            chunks += [message for message in messages if message.topic == self._topics.chunks]
        return chunks

    async def handle(self, messages: Sequence[Message]) -> None:
        """Those of the documents topic."""
        for message in messages:
            await self.extraction.handle(message)

    async def embed(self, messages: Sequence[Message]) -> None:
        for message in messages:
            await embed_chunks(
                [read_message(message)],
                spaces=OneSpace(SPACE),
                models={SPACE.model: self.encoder},
                store=self.vectors,
            )

    async def run(self) -> None:
        """Until nothing is left to do."""
        while messages := await self.extract():
            await self.embed(messages)

    async def sent(self, topic: str) -> list[Message]:
        """Everything on a topic, handled or not."""
        rows = await self._pool.fetch("SELECT * FROM outbox WHERE topic = $1 ORDER BY id", topic)
        return [_message(row) for row in rows]

    async def _next(self) -> list[Message]:
        rows = await self._pool.fetch("SELECT * FROM outbox WHERE id > $1 ORDER BY id", self._last)
        self._last = rows[-1]["id"] if rows else self._last
        return [_message(row) for row in rows]


def _message(row: asyncpg.Record) -> Message:
    return Message(
        row["topic"],
        0,
        row["id"],
        0,
        row["key"].encode(),
        row["payload"],
        {name: value.encode() for name, value in json.loads(row["headers"]).items()},
    )


def text(*paragraphs: str) -> bytes:
    return "\n\n".join(paragraphs).encode()


async def state(http: httpx.AsyncClient, document: str) -> tuple[str, int, int | None, int]:
    shown = (await http.get(f"/documents/{document}")).json()
    return shown["status"], shown["revision"], shown["live_revision"], shown["embedded_count"]


async def searchable(pool: Pool, document: str) -> list[tuple[int, str]]:
    """Revision and text of what both legs of search see."""
    rows = await pool.fetch(
        f"""SELECT c.revision, c.content FROM chunks c JOIN {SPACE.table} v ON v.chunk_id = c.id
            WHERE c.document_id = $1 AND c.live AND v.live ORDER BY c.ordinal""",  # noqa: S608
        UUID(document),
    )
    return [(row["revision"], row["content"]) for row in rows]
