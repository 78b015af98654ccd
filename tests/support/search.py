"""Knowledge bases, live chunks and vectors of a test's own making, as ingest and the embedder write them."""

# ruff: noqa: S608 - the name of the table is a constant

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID, uuid4

from pgvector import Vector

from kbmesh.auth import Principal
from kbmesh.postgres import Pool, transaction
from kbmesh.provenance import DOCUMENT_CHUNK, Tier
from services.embedder.domain.spaces import Space
from services.search.domain.retrieval import QueryVector, VectorLegSkipped
from services.search.domain.retrieval import Space as SearchedSpace
from tests.support.vectors import open_space

DIMENSIONS: Final = 4
SPACE: Final = Space("test", DIMENSIONS)


@dataclass(frozen=True, slots=True)
class Text:
    """One chunk; without a vector it waits for the embedder."""

    content: str
    vector: Sequence[float] | None = (1, 0, 0, 0)
    tier: Tier = Tier.CUSTOMER_FACT
    valid_until: datetime | None = None
    page: int | None = None
    headings: Sequence[str] = ()
    start: int = 0
    """Where it begins in its document."""


@dataclass(frozen=True, slots=True)
class Corpus:
    pool: Pool
    space: Space = SPACE

    async def create_space(self) -> None:
        await open_space(self.pool, self.space)

    async def add_base(self, owner: UUID, *, team: bool = False) -> UUID:
        kb_id = uuid4()
        await self.pool.execute(
            "INSERT INTO knowledge_bases (id, owner_type, owner_id, name) VALUES ($1, $2, $3, 'base')",
            kb_id,
            "team" if team else "user",
            owner,
        )
        return kb_id

    async def add_channel(self, owner: UUID, channel_id: str, *kb_ids: UUID, team: bool = False) -> None:
        await self.pool.execute(
            "INSERT INTO channels (owner_type, owner_id, id, settings) VALUES ($1, $2, $3, $4)",
            "team" if team else "user",
            owner,
            channel_id,
            json.dumps({"kb_ids": [str(kb_id) for kb_id in kb_ids]}),
        )

    async def add_document(
        self,
        kb_id: UUID,
        *texts: Text,
        filename: str | None = None,
        category: str = "other",
        live: bool = True,
        content_type: str = "text/plain",
        metadata: Mapping[str, object] | None = None,
        created_at: datetime | None = None,
        document_id: UUID | None = None,
    ) -> list[UUID]:
        """The ids of its chunks."""
        document_id = document_id or uuid4()
        embedded = sum(text.vector is not None for text in texts)
        await self.pool.execute(
            "INSERT INTO documents (id, kb_id, filename, content_type, category, size_bytes, content_sha256,"
            " storage_key, uploader, status, live_revision, chunk_count, embedded_count, metadata, created_at)"
            " VALUES ($1, $2, $3, $9, $4, 1, $5, $6, $1, 'ready', 1, $7, $8, $10, coalesce($11, now()))",
            document_id,
            kb_id,
            filename or f"{document_id}.txt",
            category,
            hashlib.sha256(document_id.bytes).digest(),
            str(document_id),
            len(texts),
            embedded,
            content_type,
            json.dumps(metadata or {}),
            created_at,
        )
        return await self.add_revision(kb_id, document_id, 1, *texts, live=live)

    async def add_revision(
        self, kb_id: UUID, document_id: UUID, revision: int, *texts: Text, live: bool
    ) -> list[UUID]:
        ids = [uuid4() for _ in texts]
        async with transaction(self.pool) as conn:
            await conn.executemany(
                "INSERT INTO chunks (id, kind, source_id, kb_id, document_id, revision, ordinal, content,"
                " content_sha256, token_count, metadata, tier, valid_until, live)"
                " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 1, $10, $11, $12, $13)",
                [
                    (
                        chunk_id,
                        DOCUMENT_CHUNK,
                        str(document_id),
                        kb_id,
                        document_id,
                        revision,
                        ordinal,
                        text.content,
                        hashlib.sha256(text.content.encode()).digest(),
                        json.dumps(
                            {
                                "page": text.page,
                                "headings": list(text.headings),
                                "char_start": text.start,
                                "char_end": text.start + len(text.content),
                            }
                        ),
                        text.tier,
                        text.valid_until,
                        live,
                    )
                    for ordinal, (chunk_id, text) in enumerate(zip(ids, texts, strict=True))
                ],
            )
            await conn.executemany(
                f"INSERT INTO {self.space.table} VALUES ($1, $2, $3, $4, $5)",
                [
                    (chunk_id, kb_id, DOCUMENT_CHUNK, live, Vector(list(text.vector)))
                    for chunk_id, text in zip(ids, texts, strict=True)
                    if text.vector is not None
                ],
            )
        return ids

    async def add_record(
        self,
        kind: str,
        *texts: Text,
        title: str = "",
        attributes: Mapping[str, object] | None = None,
        live: bool = True,
    ) -> list[UUID]:
        """The ids of its chunks."""
        ids = [uuid4() for _ in texts]
        source = (kind, str(ids[0]), 1)
        async with transaction(self.pool) as conn:
            await conn.execute(
                "INSERT INTO records (kind, source_id, revision, live_revision, content_sha256, chunk_count)"
                " VALUES ($1, $2, $3, $3, $4, $5)",
                *source,
                bytes(32),
                len(texts),
            )
            await conn.executemany(
                "INSERT INTO chunks (id, kind, source_id, revision, ordinal, content, content_sha256, token_count,"
                " metadata, tier, valid_until, live) VALUES ($1, $2, $3, $4, $5, $6, $7, 1, $8, $9, $10, $11)",
                [
                    (
                        chunk_id,
                        *source,
                        ordinal,
                        text.content,
                        hashlib.sha256(text.content.encode()).digest(),
                        json.dumps(
                            {
                                "page": text.page,
                                "headings": list(text.headings),
                                "char_start": 0,
                                "char_end": len(text.content),
                                "title": title,
                                "attributes": attributes or {},
                            }
                        ),
                        text.tier,
                        text.valid_until,
                        live,
                    )
                    for ordinal, (chunk_id, text) in enumerate(zip(ids, texts, strict=True))
                ],
            )
            await conn.executemany(
                f"INSERT INTO {self.space.table} VALUES ($1, NULL, $2, $3, $4)",
                [
                    (chunk_id, kind, live, Vector(list(text.vector)))
                    for chunk_id, text in zip(ids, texts, strict=True)
                    if text.vector is not None
                ],
            )
        return ids

    async def swap(self, old: Sequence[UUID], new: Sequence[UUID]) -> None:
        """What the embedder does when a revision is complete."""
        async with transaction(self.pool) as conn:
            await conn.execute("DELETE FROM chunks WHERE id = ANY($1)", old)
            await conn.execute("UPDATE chunks SET live = true WHERE id = ANY($1)", new)
            await conn.execute(f"UPDATE {self.space.table} SET live = true WHERE chunk_id = ANY($1)", new)


@dataclass(slots=True)
class FakeEmbedder:
    """Port QueryEmbedder: the vector of a question is looked up, all others get the first axis."""

    vectors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    failure: VectorLegSkipped | None = None

    async def embed(self, text: str, space: SearchedSpace, *, timeout_s: float) -> QueryVector:
        if self.failure is not None:
            raise self.failure
        return QueryVector(tuple(self.vectors.get(text, (1.0, *[0.0] * (DIMENSIONS - 1)))), space.id)


def user() -> Principal:
    return Principal(uuid4())
