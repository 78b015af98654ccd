"""The embedder from a topic full of work to stored vectors, against the bare model on the same texts.

The embedder's process is halted while the documents of a round are uploaded and extracted, until the events of all
of their chunks are in the topic. The clock runs from when it goes on until the last document is ready. Both sides
alternate; the first round is not counted.
"""

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import asyncpg
import httpx
import psutil

from deploy.embedded.benchmarks.bare import bare_model
from deploy.embedded.benchmarks.pipeline import POLL_S, make_documents, texts_of, until_ready, upload_all
from deploy.embedded.benchmarks.report import log, report, report_ratio
from deploy.embedded.directory import DataDirectory
from deploy.embedded.stack import StackAddresses, StackOptions, running_stack

ROUNDS: Final = 5
DOCUMENTS: Final = 160
EXTRACTION_TIMEOUT_S: Final = 300

_UNFINISHED: Final = """
SELECT count(*) FILTER (WHERE status IN ('pending', 'processing'))
       + (SELECT count(*) FROM outbox WHERE published_at IS NULL)
FROM documents WHERE kb_id = $1
"""


def bench(*, quick: bool) -> None:
    asyncio.run(_bench(1 if quick else ROUNDS, 10 if quick else DOCUMENTS))


async def _bench(rounds: int, count: int) -> None:
    consumer: list[float] = []
    alone: list[float] = []
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
                kb = await make_backlog(stack, api, documents)
                started = time.perf_counter()
                await until_ready(stack, kb)
                seconds = time.perf_counter() - started
                texts = await texts_of(stack, kb)
                bare_seconds = await bare.encode(texts)
                log(f"round {number}: {len(texts)} chunks, consumer {seconds:.1f} s, bare {bare_seconds:.1f} s")
                if number:
                    consumer.append(len(texts) / seconds)
                    alone.append(len(texts) / bare_seconds)
    figures = {"documents": count, "chunks": len(texts), "precision": bare.precision}
    report("consumer_chunks_per_s", statistics.median(consumer), rounds=rounds, **figures)
    report_ratio("consumer_vs_bare_encode", consumer, alone, **figures)


async def make_backlog(stack: StackAddresses, api: httpx.AsyncClient, documents: list[str]) -> str:
    """A knowledge base of `documents` that wait for their vectors; the embedder has just been let go on."""
    pid = json.loads((DataDirectory(stack.data_dir).run / "embedder.pid").read_text())["pid"]
    embedder = psutil.Process(pid)
    embedder.suspend()
    try:
        kb = await upload_all(api, documents)
        database = await asyncpg.connect(stack.postgres_dsn)
        try:
            async with asyncio.timeout(EXTRACTION_TIMEOUT_S):
                while await database.fetchval(_UNFINISHED, kb):  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(POLL_S)
        finally:
            await database.close()
    finally:
        embedder.resume()
    return kb
