"""Whole kinds of records that replace one another (the table `generations`)."""

from typing import Final

from kbmesh.postgres import Connection

SWAP_TIMEOUT_S: Final = 300
"""A swap touches every new vector of a kind; the index takes about a thousand of them per second."""

_LOCK: Final = "SELECT newest, live FROM generations WHERE kind = $1 FOR UPDATE"
_BEGIN: Final = """
INSERT INTO generations AS g (kind, newest) VALUES ($1, $2)
ON CONFLICT (kind) DO UPDATE
SET newest       = greatest(g.newest, $2),
    record_count = CASE WHEN g.newest < $2 THEN NULL ELSE g.record_count END
RETURNING newest, live
"""


async def enter_generation(conn: Connection, kind: str, generation: int) -> int | None:
    """Locks the kind for this transaction, before its records, and begins the generation if it is the newest.

    Returns:
        The live one, 0: none; or None when a newer one has begun, so that this one counts no more.
    """
    if generation == 0:
        row = await conn.fetchrow(_LOCK, kind)
        return 0 if row is None else int(row["live"])
    row = await conn.fetchrow(_BEGIN, kind, generation)
    assert row is not None  # noqa: S101 - a row is returned in either case
    return int(row["live"]) if row["newest"] == generation else None


async def seal_generation(conn: Connection, kind: str, generation: int, record_count: int) -> bool:
    """Whether it went live with that."""
    if await enter_generation(conn, kind, generation) is None:
        return False
    await conn.execute("UPDATE generations SET record_count = $2 WHERE kind = $1", kind, record_count)
    return await complete_generation(conn, kind)


async def complete_generation(conn: Connection, kind: str) -> bool:
    """Whether the newest generation of the kind went live, as all of it is there."""
    done: bool = await conn.fetchval("SELECT complete_generation($1)", kind, timeout=SWAP_TIMEOUT_S)
    return done
