"""Search over many chunks: KbSearch against its parts alone, at 1, 8 and 32 clients, and what each leg finds.

Each size has a stack of its own. In turn, question by question, one client asks the search service over gRPC, the
statements of each leg through a pool of the benchmark's own, with the same vector, and the bare model. Search
remembers no vectors here, so it can take no less than the model and the slower leg. KBMESH_BENCH_CHUNKS names
other sizes, the largest last: `10000,100000,1000000` takes an hour and more. Texts and vectors are those of
`corpus`.
"""

import asyncio
import itertools
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import grpc
import jwt
from pydantic import SecretStr

from deploy.embedded.benchmarks.bare import BareModel, bare_model
from deploy.embedded.benchmarks.corpus import SEEN, Corpus, caller, load
from deploy.embedded.benchmarks.recall import measure_recall, ms, timed, visibility
from deploy.embedded.benchmarks.report import log, report, report_ratio
from deploy.embedded.stack import StackOptions, running_stack
from kbmesh.embedding.v1 import embedding_pb2, embedding_pb2_grpc
from kbmesh.postgres import Pool, PostgresSettings, connection, open_pool
from kbmesh.rpc import ChannelSettings, open_channel
from kbmesh.search.v1 import search_pb2, search_pb2_grpc
from services.search.adapters.postgres import SERVER_SETTINGS, PostgresPassages
from services.search.domain.retrieval import QueryVector, Space
from services.search.handlers.legs import plan_scan

SIZES: Final = "10000,100000"
CONNECTIONS: Final = 2  # that load
ROUNDS: Final = 7
QUESTIONS: Final = 30  # of each side in a round, and for recall
CLIENTS: Final = (1, 8, 32)
SECONDS: Final = 10.0  # of each number of clients and mode
TIMEOUT_S: Final = 30
MODES: Final = {
    "hybrid": search_pb2.MODE_HYBRID,
    "vector": search_pb2.MODE_VECTOR,
    "keyword": search_pb2.MODE_KEYWORD,
}

_SIZES: Final = """
SELECT relname, pg_relation_size(oid) AS bytes FROM pg_class
WHERE relname = ANY($1) OR relname IN ('chunks', 'chunks_tsv')
"""


@dataclass(frozen=True, slots=True)
class Effort:
    rounds: int = ROUNDS
    questions: int = QUESTIONS
    seconds: float = SECONDS


def bench(*, quick: bool) -> None:
    sizes = "2000" if quick else os.environ.get("KBMESH_BENCH_CHUNKS", SIZES)
    effort = Effort(1, 3, 0.5) if quick else Effort()
    asyncio.run(_bench([int(size) for size in sizes.split(",")], effort))


async def _bench(sizes: Sequence[int], effort: Effort) -> None:
    p50: dict[int, Mapping[str, float]] = {}
    with bare_model() as bare:
        for chunks in sizes:
            with tempfile.TemporaryDirectory(prefix="kbmesh-bench-", ignore_cleanup_errors=True) as directory:
                p50[chunks] = await _bench_size(Path(directory), bare, chunks, effort)
    for smaller, larger in itertools.pairwise(sizes):
        for mode in MODES:
            ratio = p50[larger][mode] / p50[smaller][mode]
            report("kb_search_p50_growth", ratio, mode=mode, smaller=smaller, larger=larger)


async def _bench_size(directory: Path, bare: BareModel, chunks: int, effort: Effort) -> Mapping[str, float]:
    """Median seconds by mode, of one client."""
    secret = secrets.token_hex(32)
    auth = {
        f"KBMESH_{service}_AUTH__{key}": value
        for service in ("SEARCH", "EMBEDDER")
        for key, value in {"MODE": "hs256", "SECRET": secret}.items()
    }
    # The same questions are asked again and again.
    settings = bare.settings | auth | {"KBMESH_SEARCH_QUERY_CACHE_ENTRIES": "0"}
    async with (
        running_stack(StackOptions.throwaway(directory, settings), log) as stack,
        open_pool(
            PostgresSettings(dsn=SecretStr(stack.postgres_dsn)), vectors=True, server_settings=SERVER_SETTINGS
        ) as pool,
        open_channel(ChannelSettings(target=stack.search)) as search,
        open_channel(ChannelSettings(target=stack.embedder)) as embedder,
    ):
        store = PostgresPassages(pool)
        space = await store.active_space()
        if space is None:
            raise RuntimeError("the embedder has made no space")
        corpus = Corpus(chunks, space.dimensions)
        took = await load(pool, corpus, space.table, connections=CONNECTIONS)
        await report_sizes(pool, space.table, took, chunks)
        await measure_recall(store, space, corpus, effort.questions)
        client = Client(search, embedder, store, space, secret)
        questions, _ = corpus.questions(effort.questions)
        await measure_parts(client, bare, questions, chunks, effort.rounds)
        return await measure_clients(client, questions, chunks, effort.seconds)


async def report_sizes(pool: Pool, table: str, took: Mapping[str, float], chunks: int) -> None:
    async with connection(pool) as conn:
        sizes = {row["relname"]: row["bytes"] for row in await conn.fetch(_SIZES, [table, f"{table}_hnsw"])}
    for name, size in sizes.items():
        report("search_relation_mb", size / 1e6, relation=name, chunks=chunks)
    for name, seconds in took.items():
        report("search_load_s", seconds, step=name, chunks=chunks)


class Client:
    """Of a caller who sees all."""

    def __init__(
        self,
        search: grpc.aio.Channel,
        embedder: grpc.aio.Channel,
        store: PostgresPassages,
        space: Space,
        secret: str,
    ) -> None:
        self._search = search_pb2_grpc.SearchServiceStub(search)
        self._embedder = embedding_pb2_grpc.EmbeddingServiceStub(embedder)
        self._store = store
        self._space = space
        self._visible = visibility(SEEN[-1])
        principal = caller(SEEN[-1])
        claims = {
            "sub": str(principal.sub),
            "teams": [str(team) for team in principal.teams],
            "aud": "kbmesh",
            "exp": time.time() + 12 * 3600,
        }
        self._metadata = (("authorization", f"Bearer {jwt.encode(claims, secret, 'HS256')}"),)

    async def search(self, text: str, mode: search_pb2.Mode.ValueType) -> None:
        answer = await self._search.KbSearch(
            search_pb2.KbSearchRequest(query=text, mode=mode), timeout=TIMEOUT_S, metadata=self._metadata
        )
        if answer.degraded:
            raise RuntimeError(f"a leg did not answer: {answer.degraded_reason}")

    async def embed(self, text: str) -> QueryVector:
        request = embedding_pb2.EmbedRequest(texts=[text], input_type=embedding_pb2.INPUT_TYPE_QUERY)
        answer = await self._embedder.Embed(request, timeout=TIMEOUT_S, metadata=self._metadata)
        return QueryVector(tuple(answer.embeddings[0].values), answer.space_id)

    async def legs(self, text: str, vector: QueryVector) -> tuple[float, float]:
        """Seconds of the vector leg's statements and of the keyword leg's, alone."""
        scan = await plan_scan(self._visible, self._store)
        by_vector, _ = await timed(self._store.by_vector(vector, self._space, self._visible, scan))
        by_keywords, _ = await timed(self._store.by_keywords(text, self._visible, scan))
        return by_vector, by_keywords


async def measure_parts(
    client: Client, bare: BareModel, questions: Sequence[str], chunks: int, rounds: int
) -> None:
    vectors = [await client.embed(text) for text in questions]
    searches: list[float] = []
    least: list[float] = []
    parts: dict[str, list[float]] = {"kb_search": [], "model": [], "vector_leg": [], "keyword_leg": []}
    for number in range(rounds + 1):
        seconds: dict[str, list[float]] = {name: [] for name in parts}
        for text, vector in zip(questions, vectors, strict=True):
            took, _ = await timed(client.search(text, search_pb2.MODE_HYBRID))
            by_vector, by_keywords = await client.legs(text, vector)
            [model] = await bare.queries(text, 1)
            for name, value in zip(parts, (took, model, by_vector, by_keywords), strict=True):
                seconds[name].append(value)
        if number:  # the first warms all sides
            p50 = {name: statistics.median(values) for name, values in seconds.items()}
            searches.append(p50["kb_search"])
            least.append(p50["model"] + max(p50["vector_leg"], p50["keyword_leg"]))
            for name, values in seconds.items():
                parts[name] += values
    figures = {"chunks": chunks, "questions": len(questions)}
    for name, values in parts.items():
        report("search_part_p50_ms", ms(values), part=name, **figures)
    report_ratio("kb_search_p50_vs_model_and_slower_leg", searches, least, **figures)


async def measure_clients(
    client: Client, questions: Sequence[str], chunks: int, seconds: float
) -> Mapping[str, float]:
    """Median seconds by mode, of the first number of clients."""
    alone: dict[str, float] = {}
    for clients in CLIENTS:
        for name, mode in MODES.items():
            took = await closed_loop(partial(client.search, mode=mode), questions, clients, seconds)
            cuts = statistics.quantiles(took, n=100)
            alone.setdefault(name, cuts[49])
            figures = {"mode": name, "clients": clients, "chunks": chunks, "samples": len(took)}
            for percentile in (50, 95, 99):
                report(f"kb_search_p{percentile}_ms", cuts[percentile - 1] * 1000, **figures)
            report("kb_search_per_s", clients * len(took) / sum(took), **figures)
    return alone


async def closed_loop(
    ask: Callable[[str], Awaitable[None]], questions: Sequence[str], clients: int, seconds: float
) -> list[float]:
    """Seconds of each answer, of clients who ask the next question when they have it."""
    took: list[float] = []
    ending = time.perf_counter() + seconds

    async def one(first: int) -> None:
        for text in itertools.islice(itertools.cycle(questions), first, None):
            took.append((await timed(ask(text)))[0])
            if time.perf_counter() > ending:
                return

    async with asyncio.TaskGroup() as tasks:
        for first in range(clients):
            tasks.create_task(one(first))
    return took
