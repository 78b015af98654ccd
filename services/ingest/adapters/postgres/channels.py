import json
from collections.abc import Sequence
from uuid import UUID

from kbmesh.auth import Principal
from kbmesh.postgres import Connection, Pool, connection, transaction
from kbmesh.postgres.access import OWN_OR_TEAMS, identity
from services.ingest.domain.models import Channel, OwnerType


class PostgresChannels:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def save(self, principal: Principal, channel: Channel) -> bool:
        async with transaction(self._pool) as conn:
            if await _visible(conn, principal, channel.kb_ids) != channel.kb_ids:
                return False
            await conn.execute(
                """INSERT INTO channels (owner_type, owner_id, id, settings) VALUES ($1, $2, $3, $4)
                   ON CONFLICT (owner_type, owner_id, id)
                   DO UPDATE SET settings = excluded.settings, updated_at = now()""",
                channel.owner_type,
                channel.owner_id,
                channel.id,
                json.dumps({"kb_ids": [str(kb_id) for kb_id in channel.kb_ids]}),
            )
            return True

    async def find(
        self, principal: Principal, owner_type: OwnerType, owner_id: UUID, channel_id: str
    ) -> Channel | None:
        async with connection(self._pool) as conn:
            settings = await conn.fetchval(
                f"""SELECT settings FROM channels
                    WHERE {OWN_OR_TEAMS} AND owner_type = $3 AND owner_id = $4 AND id = $5""",
                *identity(principal),
                owner_type,
                owner_id,
                channel_id,
            )
            if settings is None:
                return None
            kb_ids = await _visible(conn, principal, [UUID(kb_id) for kb_id in json.loads(settings)["kb_ids"]])
        return Channel(owner_type, owner_id, channel_id, kb_ids)


async def _visible(conn: Connection, principal: Principal, kb_ids: Sequence[UUID]) -> tuple[UUID, ...]:
    """Those of `kb_ids` that are there for the principal to see, in their order."""
    rows = await conn.fetch(
        f"SELECT kb.id FROM knowledge_bases kb WHERE {OWN_OR_TEAMS} AND kb.id = ANY($3::uuid[])",
        *identity(principal),
        kb_ids,
    )
    seen = {row["id"] for row in rows}
    return tuple(kb_id for kb_id in kb_ids if kb_id in seen)
