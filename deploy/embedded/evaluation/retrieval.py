"""Search on a judged collection, beside what it has to beat.

Every document is uploaded as a text file and goes through the whole pipeline; every query is asked over gRPC. An
answer counts each document once, where its first passage stands. The baselines read the same texts in this
process: BM25, exact cosine of the whole text with the vectors that the embedder gives for it, and their plain
reciprocal rank fusion.
"""

from typing import Final

import grpc
import httpx

from deploy.embedded.benchmarks.report import log, report
from deploy.embedded.evaluation import asking
from deploy.embedded.evaluation.baselines import by_bm25, by_cosine, by_rrf
from deploy.embedded.evaluation.beir import Collection
from deploy.embedded.evaluation.measures import DEPTH, Run, measure
from deploy.embedded.stack import StackAddresses
from kbmesh.embedding.v1 import embedding_pb2
from kbmesh.rpc import ChannelSettings, open_channel
from kbmesh.search.v1 import search_pb2

MODES: Final = {
    "hybrid": search_pb2.MODE_HYBRID,
    "vector": search_pb2.MODE_VECTOR,
    "keyword": search_pb2.MODE_KEYWORD,
}


async def evaluate(stack: StackAddresses, api: httpx.AsyncClient, collection: Collection) -> None:
    """Prints the measures of each mode and baseline."""
    names, texts = list(collection.texts), list(collection.texts.values())
    queries = list(collection.queries.values())

    def tell(mode: str, run: Run) -> Run:
        for name, value in measure(run, collection.judgements).items():
            report(f"{collection.name}_{mode}_{name}", value, documents=len(texts), queries=len(queries))
        return run

    files = [asking.File(name, f"{name}.txt", text) for name, text in collection.texts.items()]
    filled = await asking.fill(api, collection.name, files)
    async with (
        open_channel(ChannelSettings(target=stack.search)) as search,
        open_channel(ChannelSettings(target=stack.embedder)) as embedder,
    ):
        for name, mode in MODES.items():
            tell(name, await ask(search, filled, collection.queries, mode))
        query_vectors = await asking.embed(embedder, queries, embedding_pb2.INPUT_TYPE_QUERY)
        log(f"{collection.name}: embedding {len(texts)} texts for the baseline")
        vectors = await asking.embed(embedder, texts, embedding_pb2.INPUT_TYPE_DOCUMENT)
    bm25 = tell("bm25s", by_bm25(collection.texts, collection.queries))
    exact = tell("exact", by_cosine(names, vectors, list(collection.queries), query_vectors))
    tell("rrf", by_rrf(bm25, exact))


async def ask(
    search: grpc.aio.Channel, filled: asking.Filled, queries: dict[str, str], mode: search_pb2.Mode.ValueType
) -> Run:
    async def found(text: str) -> list[str]:
        passages = await asking.search(search, filled.kb_id, text, DEPTH, mode)
        return list(dict.fromkeys(filled.files[passage.document_id] for passage in passages))

    answers = await asking.few_at_once(found, list(queries.values()))
    return dict(zip(queries, answers, strict=True))
