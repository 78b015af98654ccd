"""The whole pipeline, from HTTP to stored vectors, against the bare model on the same texts.

Rounds of both sides alternate in one run, since the speed of a machine drifts; the medians are compared.
"""

import asyncio
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import asyncpg
import httpx

from deploy.embedded.benchmarks.bare import bare_model
from deploy.embedded.benchmarks.prose import sentences
from deploy.embedded.benchmarks.report import log, report, report_ratio
from deploy.embedded.stack import StackAddresses, StackOptions, running_stack
from services.embedder.domain.chunks import PendingChunk

ROUNDS: Final = 5
DOCUMENTS: Final = 80
READY_TIMEOUT_S: Final = 600
POLL_S: Final = 0.05
UPLOADS_AT_ONCE: Final = 8


def bench(*, quick: bool) -> None:
    asyncio.run(_bench(1 if quick else ROUNDS, 20 if quick else DOCUMENTS))


def make_documents(count: int, seed: int) -> list[str]:
    """Texts of mixed length: 1 to 60 sentences each, drawn from the example documents."""
    chosen = random.Random(seed)  # noqa: S311 - the same texts in every run
    prose = sentences()
    return [" ".join(chosen.choices(prose, k=chosen.randint(1, 60))) for _ in range(count)]


async def run_pipeline(stack: StackAddresses, api: httpx.AsyncClient, documents: list[str]) -> tuple[float, str]:
    """Seconds from the first upload until the last document is ready, and the knowledge base."""
    started = time.perf_counter()
    kb = await upload_all(api, documents)
    await until_ready(stack, kb)
    return time.perf_counter() - started, kb


async def upload_all(api: httpx.AsyncClient, documents: list[str]) -> str:
    """The new knowledge base that they are in."""
    kb: str = (await api.post("/knowledge-bases", json={"name": "Bench"})).json()["id"]
    slots = asyncio.Semaphore(UPLOADS_AT_ONCE)

    async def upload(number: int, text: str) -> None:
        async with slots:
            answer = await api.post(
                f"/knowledge-bases/{kb}/documents", params={"filename": f"{number}.txt"}, content=text.encode()
            )
            answer.raise_for_status()

    async with asyncio.TaskGroup() as uploads:
        for number, text in enumerate(documents):
            uploads.create_task(upload(number, text))
    return kb


async def until_ready(stack: StackAddresses, kb: str) -> None:
    """Asks the database: listing them over HTTP at that pace would take a third of a core from the work."""
    database = await asyncpg.connect(stack.postgres_dsn)
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            while await _waiting(database, kb):  # noqa: ASYNC110 - notifications would be more work
                await asyncio.sleep(POLL_S)
    finally:
        await database.close()


async def _waiting(database: asyncpg.Connection, kb: str) -> bool:
    rows = await database.fetch("SELECT DISTINCT status FROM documents WHERE kb_id = $1", kb)
    states = {row["status"] for row in rows}
    if failed := states - {"pending", "processing", "embedding", "ready"}:
        raise RuntimeError(f"documents are {failed}")
    return states != {"ready"}


async def texts_of(stack: StackAddresses, kb: str) -> list[str]:
    database = await asyncpg.connect(stack.postgres_dsn)
    try:
        rows = await database.fetch("SELECT id, content, header FROM chunks WHERE kb_id = $1 ORDER BY id", kb)
    finally:
        await database.close()
    return [PendingChunk(**row).text for row in rows]


async def _bench(rounds: int, count: int) -> None:
    pipeline: list[float] = []
    alone: list[float] = []
    chunks = 0
    with (
        tempfile.TemporaryDirectory(prefix="kbmesh-bench-", ignore_cleanup_errors=True) as directory,
        bare_model() as bare,
    ):
        async with (
            running_stack(StackOptions.throwaway(Path(directory), bare.settings), log) as stack,
            httpx.AsyncClient(base_url=stack.http_url, timeout=60, trust_env=False) as api,
        ):
            documents = make_documents(count, seed=1)
            for number in range(rounds + 1):
                seconds, kb = await run_pipeline(stack, api, documents)
                texts = await texts_of(stack, kb)
                bare_seconds = await bare.encode(texts)
                log(f"round {number}: {len(texts)} chunks, pipeline {seconds:.1f} s, bare {bare_seconds:.1f} s")
                if number:  # the first warms both sides
                    pipeline.append(len(texts) / seconds)
                    alone.append(len(texts) / bare_seconds)
                    chunks += len(texts)
    figures = {"documents": count, "chunks": chunks, "precision": bare.precision}
    report("pipeline_chunks_per_s", statistics.median(pipeline), rounds=rounds, **figures)
    report("bare_encode_chunks_per_s", statistics.median(alone), rounds=rounds, **figures)
    report_ratio("pipeline_vs_bare_encode", pipeline, alone, **figures)
