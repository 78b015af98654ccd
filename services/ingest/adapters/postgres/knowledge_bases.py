from typing import Final
from uuid import UUID, uuid4

import asyncpg

from kbmesh.auth import Principal
from kbmesh.messaging import Topics
from kbmesh.postgres import Pool, connection, fetch_one, transaction
from kbmesh.postgres.access import OWN_OR_TEAMS, identity
from services.ingest.adapters.postgres.removal import look_again, remove_documents
from services.ingest.domain.models import Contents, KnowledgeBase, OwnerType, Removed

COLUMNS: Final = "kb.id, kb.owner_type, kb.owner_id, kb.name, kb.description, kb.created_at, kb.updated_at"


class PostgresKnowledgeBases:
    def __init__(self, pool: Pool, topics: Topics) -> None:
        self._pool = pool
        self._topics = topics

    async def create(self, owner_type: OwnerType, owner_id: UUID, name: str, description: str) -> KnowledgeBase:
        async with connection(self._pool) as conn:
            row = await fetch_one(
                conn,
                f"""INSERT INTO knowledge_bases AS kb (id, owner_type, owner_id, name, description)
                    VALUES ($1, $2, $3, $4, $5) RETURNING {COLUMNS}""",
                uuid4(),
                owner_type,
                owner_id,
                name,
                description,
            )
        return _knowledge_base(row)

    async def visible(self, principal: Principal, *, after: UUID | None, limit: int) -> list[KnowledgeBase]:
        async with connection(self._pool) as conn:
            rows = await conn.fetch(
                f"""SELECT {COLUMNS} FROM knowledge_bases kb
                    WHERE {OWN_OR_TEAMS}
                      AND ($3::uuid IS NULL OR (kb.created_at, kb.id) >
                           (SELECT last.created_at, last.id FROM knowledge_bases last WHERE last.id = $3))
                    ORDER BY kb.created_at, kb.id LIMIT $4""",
                *identity(principal),
                after,
                limit,
            )
        return [_knowledge_base(row) for row in rows]

    async def find(self, principal: Principal, kb_id: UUID) -> KnowledgeBase | None:
        async with connection(self._pool) as conn:
            row = await conn.fetchrow(
                f"SELECT {COLUMNS} FROM knowledge_bases kb WHERE {OWN_OR_TEAMS} AND kb.id = $3",
                *identity(principal),
                kb_id,
            )
        return None if row is None else _knowledge_base(row)

    async def contents(self, principal: Principal, kb_id: UUID) -> Contents:
        async with connection(self._pool) as conn:
            row = await fetch_one(
                conn,
                f"""SELECT count(*) AS document_count, coalesce(sum(d.size_bytes), 0)::bigint AS size_bytes,
                           count(*) FILTER (WHERE d.status = 'ready') AS ready_count,
                           count(*) FILTER (WHERE d.status = 'failed') AS failed_count
                    FROM documents d JOIN knowledge_bases kb ON kb.id = d.kb_id
                    WHERE {OWN_OR_TEAMS} AND kb.id = $3""",
                *identity(principal),
                kb_id,
            )
        return Contents(**row)

    async def find_default(self, principal: Principal) -> KnowledgeBase | None:
        async with connection(self._pool) as conn:
            row = await conn.fetchrow(
                f"SELECT {COLUMNS} FROM knowledge_bases kb WHERE {OWN_OR_TEAMS} AND kb.is_default",
                *identity(principal),
            )
        return None if row is None else _knowledge_base(row)

    async def ensure_default(self, principal: Principal, name: str) -> KnowledgeBase:
        found = await self.find_default(principal)
        if found is not None:
            return found
        async with connection(self._pool) as conn:
            # The update changes nothing: it waits for a parallel insert and returns its row.
            row = await fetch_one(
                conn,
                f"""INSERT INTO knowledge_bases AS kb (id, owner_type, owner_id, name, is_default)
                    VALUES ($1, 'user', $2, $3, true)
                    ON CONFLICT (owner_id) WHERE is_default DO UPDATE SET is_default = true
                    RETURNING {COLUMNS}""",
                uuid4(),
                principal.sub,
                name,
            )
        return _knowledge_base(row)

    async def rename(
        self, principal: Principal, kb_id: UUID, name: str | None, description: str | None
    ) -> KnowledgeBase | None:
        async with connection(self._pool) as conn:
            row = await conn.fetchrow(
                f"""UPDATE knowledge_bases kb
                    SET name = coalesce($4, name), description = coalesce($5, description), updated_at = now()
                    WHERE {OWN_OR_TEAMS} AND kb.id = $3 RETURNING {COLUMNS}""",
                *identity(principal),
                kb_id,
                name,
                description,
            )
        return None if row is None else _knowledge_base(row)

    async def delete(self, principal: Principal, kb_id: UUID) -> Removed | None:
        async with transaction(self._pool) as conn:
            found = await conn.fetchval(
                f"SELECT kb.id FROM knowledge_bases kb WHERE {OWN_OR_TEAMS} AND kb.id = $3 FOR UPDATE",
                *identity(principal),
                kb_id,
            )
            if found is None:
                return None
            documents = await conn.fetch("SELECT * FROM documents WHERE kb_id = $1 ORDER BY id FOR UPDATE", kb_id)
            removal = await remove_documents(conn, self._topics, documents)
            await conn.execute("DELETE FROM knowledge_bases WHERE id = $1", kb_id)
        return await look_again(self._pool, removal)


def _knowledge_base(row: asyncpg.Record) -> KnowledgeBase:
    return KnowledgeBase(**{**row, "owner_type": OwnerType(row["owner_type"])})
