"""The transactional outbox: an event is written with the state it tells of, and published after the commit."""

import json

from google.protobuf.message import Message

from kbmesh.messaging.events import headers_for
from kbmesh.postgres import Connection


async def enqueue(conn: Connection, topic: str, key: str, message: Message, *, source: str) -> None:
    """Writes one event in the caller's transaction.

    Events of one key are published in the order in which their transactions took the row that the key names:
    lock that row before calling this.

    Args:
        source: CloudEvents source, for instance "/kbmesh/ingest".
    """
    await conn.execute(
        "INSERT INTO outbox (topic, key, headers, payload) VALUES ($1, $2, $3::jsonb, $4)",
        topic,
        key,
        json.dumps(headers_for(message, source=source, subject=key)),
        message.SerializeToString(deterministic=True),
    )
