"""How fast vectors get into the table of a space, with its HNSW index and without, and how long building it takes.

The embedder's statement takes arrays, writes once what comes twice and leaves out what is gone. COPY does none of
that. Both write transactions of 32 rows, as the consumer does, on one connection, in turn; the order changes each
round, and the first round is not counted. Vectors have 384 dimensions and lie around two hundred centres, as those
of texts lie around their topics. The database waits for its disk.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final
from uuid import UUID

import numpy as np
from pgvector import Vector
from pydantic import SecretStr

from deploy.embedded.benchmarks.report import log, report, report_ratio
from deploy.embedded.directory import DataDirectory
from deploy.embedded.postgres import NAME, EmbeddedPostgres
from kbmesh.postgres import Connection, PostgresSettings, connection, open_pool
from kbmesh.postgres.migrate import migrate
from services.embedder.adapters.postgres import ensure_space
from services.embedder.adapters.postgres.vectors import INSERT_VECTORS
from services.embedder.domain.spaces import Space

SPACE: Final = Space("bench", 384)
KIND: Final = "skill_chunk"
BATCH: Final = 32
ROUNDS: Final = 5
FILLED: Final = 20_000  # rows that are there before the first figure
ROWS: Final = 2048  # of a statement in a round, without the index
ROWS_INDEXED: Final = 512
CENTRES: Final = 200
BUILD_TIMEOUT_S: Final = 600
INDEX: Final = f"{SPACE.table}_hnsw"
_COUNT: Final = f"SELECT count(*) FROM {SPACE.table}"  # noqa: S608 - put together from constants
COLUMNS: Final = ("chunk_id", "kb_id", "kind", "live", "embedding")

_ADD_CHUNKS: Final = """
INSERT INTO chunks (id, kind, source_id, revision, ordinal, content, content_sha256, token_count, tier, live)
SELECT gen_random_uuid(), $1, n / $2, 1, n % $2, 'chunk', sha256('chunk'), 3, 'CustomerFact', true
FROM generate_series(0, $3 - 1) AS n
"""
_CHUNKS: Final = "SELECT source_id, array_agg(id) AS ids FROM chunks GROUP BY source_id"

Batch = tuple[str, list[UUID], list[Vector]]
"""A source, its chunks and their vectors."""
Statement = Callable[[Connection, Batch], Awaitable[object]]


def bench(*, quick: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="kbmesh-bench-", ignore_cleanup_errors=True) as path:
        directory = DataDirectory(Path(path))
        log_file = directory.log(NAME)
        with EmbeddedPostgres(directory.postgres, run_dir=directory.run, log_file=log_file) as server:
            dsn = server.ensure_database("kbmesh")
            migrate(dsn)
            sizes = (1, 1024, 256, 128) if quick else (ROUNDS, FILLED, ROWS, ROWS_INDEXED)
            asyncio.run(_bench(dsn, *sizes))


async def _bench(dsn: str, rounds: int, filled: int, rows: int, rows_indexed: int) -> None:
    async with open_pool(PostgresSettings(dsn=SecretStr(dsn)), vectors=True) as pool:
        await ensure_space(pool, SPACE.model, SPACE.dimensions, {SPACE.model: SPACE.dimensions})
        async with connection(pool) as conn:
            count = filled + 2 * (rounds + 1) * (rows + rows_indexed)
            await conn.execute(_ADD_CHUNKS, KIND, BATCH, count, timeout=BUILD_TIMEOUT_S)
            await conn.execute("ANALYZE")
            batches = make_batches([(row["source_id"], row["ids"]) for row in await conn.fetch(_CHUNKS)])
            index = await conn.fetchval("SELECT indexdef FROM pg_indexes WHERE indexname = $1", INDEX)
            await conn.execute(f"DROP INDEX {INDEX}")
            for batch in islice(batches, filled // BATCH):
                await copy(conn, batch)
            plain = await compare(conn, batches, rounds, rows, index="none")
            await build(conn, index)
            indexed = await compare(conn, batches, rounds, rows_indexed, index="hnsw")
    report("vector_insert_hnsw_vs_none", indexed / plain, statement="unnest", dimensions=SPACE.dimensions)


def make_batches(sources: list[tuple[str, list[UUID]]]) -> Iterator[Batch]:
    dice = np.random.default_rng(1)
    centres = dice.normal(size=(CENTRES, SPACE.dimensions))
    for source_id, ids in sources:
        vectors = centres[dice.integers(CENTRES, size=len(ids))] + dice.normal(size=(len(ids), SPACE.dimensions))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        yield source_id, ids, [Vector(vector) for vector in vectors]


async def unnest(conn: Connection, batch: Batch) -> object:
    source_id, ids, vectors = batch
    return await conn.execute(INSERT_VECTORS.format(table=SPACE.table), [KIND], [source_id], [1], ids, vectors)


async def copy(conn: Connection, batch: Batch) -> object:
    _, ids, vectors = batch
    records = [(chunk_id, None, KIND, True, vector) for chunk_id, vector in zip(ids, vectors, strict=True)]
    return await conn.copy_records_to_table(SPACE.table, records=records, columns=COLUMNS)


async def compare(conn: Connection, batches: Iterator[Batch], rounds: int, rows: int, *, index: str) -> float:
    """Rows a second of the embedder's statement."""
    statements: list[Statement] = [unnest, copy]
    rates: dict[Statement, list[float]] = {unnest: [], copy: []}
    before = await conn.fetchval(_COUNT)
    for number in range(rounds + 1):
        for statement in statements:
            own = list(islice(batches, rows // BATCH))
            started = time.perf_counter()
            for batch in own:
                await statement(conn, batch)
            seconds = time.perf_counter() - started
            if number:
                rates[statement].append(rows / seconds)
        statements.reverse()
    inserted = await conn.fetchval(_COUNT) - before
    if inserted != 2 * (rounds + 1) * rows:
        raise RuntimeError(f"{inserted} rows are there that were not before")
    figures = {"index": index, "batch": BATCH, "rows_before": before, "dimensions": SPACE.dimensions}
    for name, statement in (("unnest", unnest), ("copy", copy)):
        median = statistics.median(rates[statement])
        log(f"{name}, index {index}: {median:.0f} rows/s")
        report("vector_insert_rows_per_s", median, statement=name, rounds=rounds, **figures)
    report_ratio("vector_insert_unnest_vs_copy", rates[unnest], rates[copy], **figures)
    return statistics.median(rates[unnest])


async def build(conn: Connection, index: str) -> None:
    rows = await conn.fetchval(_COUNT)
    started = time.perf_counter()
    await conn.execute(index, timeout=BUILD_TIMEOUT_S)
    seconds = time.perf_counter() - started
    memory = await conn.fetchval("SHOW maintenance_work_mem")
    figures = {"rows": rows, "dimensions": SPACE.dimensions, "maintenance_work_mem": memory}
    report("hnsw_build_s", seconds, **figures)
    report("hnsw_build_rows_per_s", rows / seconds, **figures)
