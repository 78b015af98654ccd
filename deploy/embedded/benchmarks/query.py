"""One query through gRPC against the bare model call, idle and while the consumer takes all that the machine has.

The embedder and the bare model are processes of their own with the same number of threads; one client asks, one
query at a time. Idle, the sides alternate. Under load, queries come at random moments while the embedder works off
a backlog that was extracted before. Then one waits for the slice that is being encoded, of which the longest is
measured with the bare model. Medians and 95th percentiles, milliseconds.
"""

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import asyncpg
import grpc
import httpx

from deploy.embedded.benchmarks.bare import BareModel, bare_model
from deploy.embedded.benchmarks.consumer import make_backlog
from deploy.embedded.benchmarks.pipeline import make_documents, until_ready
from deploy.embedded.benchmarks.report import log, report, report_ratio
from deploy.embedded.stack import StackAddresses, StackOptions, running_stack
from kbmesh.embedding.v1 import embedding_pb2, embedding_pb2_grpc
from kbmesh.rpc import ChannelSettings, open_channel

ROUNDS: Final = 9
QUERIES: Final = 50  # of each side in a round
DOCUMENTS: Final = 160
PAUSE_S: Final = 0.1  # under load, at most
TIMEOUT_S: Final = 30
QUERY: Final = "How often are the nightly exports of the reporting schema checked, and by whom?"

_BUSY: Final = "SELECT EXISTS (SELECT FROM documents WHERE kb_id = $1 AND status = 'embedding')"


def bench(*, quick: bool) -> None:
    asyncio.run(_bench(1 if quick else ROUNDS, 10 if quick else QUERIES, 20 if quick else DOCUMENTS))


async def _bench(rounds: int, queries: int, documents: int) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="kbmesh-bench-", ignore_cleanup_errors=True) as directory,
        bare_model() as bare,
    ):
        async with (
            running_stack(StackOptions.throwaway(Path(directory), bare.settings), log) as stack,
            open_channel(ChannelSettings(target=stack.embedder)) as channel,
        ):
            client = _Client(channel)
            await measure_idle(client, bare, rounds, queries)
            await measure_busy(client, bare, stack, documents)


class _Client:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = embedding_pb2_grpc.EmbeddingServiceStub(channel)

    async def queries(self, count: int) -> list[float]:
        """Seconds of each."""
        return [await self.query() for _ in range(count)]

    async def query(self) -> float:
        started = time.perf_counter()
        await self._stub.Embed(embedding_pb2.EmbedRequest(texts=[QUERY]), timeout=TIMEOUT_S)
        return time.perf_counter() - started


async def measure_idle(client: _Client, bare: BareModel, rounds: int, queries: int) -> None:
    remote: list[list[float]] = []
    local: list[list[float]] = []
    for number in range(rounds + 1):
        through, alone = await client.queries(queries), await bare.queries(QUERY, queries)
        if number:  # the first warms both sides
            remote.append(through)
            local.append(alone)
    figures = {"load": "idle", "precision": bare.precision, "queries": queries}
    tell("grpc", list(chain.from_iterable(remote)), **figures)
    tell("bare", list(chain.from_iterable(local)), **figures)
    for name, quantile in (("p50", statistics.median), ("p95", _p95)):
        report_ratio(
            f"query_embedding_{name}_vs_bare",
            [quantile(times) for times in remote],
            [quantile(times) for times in local],
            **figures,
        )


async def measure_busy(client: _Client, bare: BareModel, stack: StackAddresses, documents: int) -> None:
    dice = random.Random(1)  # noqa: S311 - the same moments in every run
    seconds: list[float] = []
    alone = statistics.median(await bare.queries(QUERY, 20))
    slice_s = statistics.median([await bare.slice() for _ in range(3)])
    database = await asyncpg.connect(stack.postgres_dsn)
    async with httpx.AsyncClient(base_url=stack.http_url, timeout=60, trust_env=False) as api:
        kb = await make_backlog(stack, api, make_documents(documents, seed=2))
        try:
            while await database.fetchval(_BUSY, kb):
                seconds.append(await client.query())
                await asyncio.sleep(dice.uniform(0, PAUSE_S))
        finally:
            await database.close()
        await until_ready(stack, kb)
    # The first may have come before the consumer had anything, the last when it had nothing left.
    figures = {"load": "consumer", "precision": bare.precision, "slice_ms": round(slice_s * 1000, 1)}
    tell("grpc", seconds[1:-1], **figures)
    report("query_embedding_p95_vs_slice", _p95(seconds[1:-1]) / (slice_s + alone), **figures)


def tell(side: str, seconds: Sequence[float], **figures: object) -> None:
    figures = {"side": side, "samples": len(seconds), **figures}
    report("query_embedding_p50_ms", statistics.median(seconds) * 1000, **figures)
    report("query_embedding_p95_ms", _p95(seconds) * 1000, **figures)


def _p95(seconds: Sequence[float]) -> float:
    return statistics.quantiles(seconds, n=20)[-1]
