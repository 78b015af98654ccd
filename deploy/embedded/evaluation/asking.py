"""A running stack as its clients see it: uploads over HTTP, questions over gRPC."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import grpc
import httpx
import numpy as np

from deploy.embedded.benchmarks.report import log
from deploy.embedded.evaluation.baselines import Vectors
from kbmesh.embedding.v1 import embedding_pb2, embedding_pb2_grpc
from kbmesh.search.v1 import search_pb2, search_pb2_grpc

AT_ONCE: Final = 4
CALL_TIMEOUT_S: Final = 60
READY_TIMEOUT_S: Final = 3600
POLL_S: Final = 5.0
TEXTS: Final = 32  # of one call of the embedder

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class File:
    """`id` is the caller's, `fields` are those of the upload: category and the like."""

    id: str
    filename: str
    text: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Filled:
    """A knowledge base whose documents are ready; `files` has the caller's id of each by that of the document."""

    kb_id: str
    files: dict[str, str]


async def fill(api: httpx.AsyncClient, name: str, files: Iterable[File]) -> Filled:
    """Uploads `files` into a new knowledge base and waits until they are searched.

    Raises:
        httpx.HTTPError: an upload is refused.
        RuntimeError: a document failed.
        TimeoutError: they are not ready within an hour; one without text never is.
    """
    kb: str = (await api.post("/knowledge-bases", json={"name": name})).raise_for_status().json()["id"]

    async def upload(file: File) -> tuple[str, str]:
        answer = await api.post(
            f"/knowledge-bases/{kb}/documents",
            params={"filename": file.filename, **file.fields},
            content=file.text.encode(),
        )
        return answer.raise_for_status().json()["document_id"], file.id

    documents = dict(await few_at_once(upload, list(files)))
    log(f"{name}: {len(documents)} documents uploaded")
    async with asyncio.timeout(READY_TIMEOUT_S):
        while (ready := await _count_ready(api, kb)) < len(documents):
            log(f"{name}: {ready} of {len(documents)} ready")
            await asyncio.sleep(POLL_S)
    return Filled(kb, documents)


async def search(
    channel: grpc.aio.Channel,
    kb: str,
    text: str,
    limit: int,
    mode: search_pb2.Mode.ValueType = search_pb2.MODE_HYBRID,
) -> Sequence[search_pb2.Passage]:
    """
    Raises:
        RuntimeError: one leg did not answer, so that the answer says nothing about search.
    """
    stub = search_pb2_grpc.SearchServiceStub(channel)
    request = search_pb2.KbSearchRequest(query=text, kb_ids=[kb], limit=limit, mode=mode)
    answer: search_pb2.KbSearchResponse = await stub.KbSearch(request, timeout=CALL_TIMEOUT_S)
    if answer.degraded:
        raise RuntimeError(f"search is degraded: {answer.degraded_reason}")
    return answer.passages


async def embed(
    channel: grpc.aio.Channel, texts: Sequence[str], input_type: embedding_pb2.InputType.ValueType
) -> Vectors:
    """With the model of the active space; shape (texts, dimensions)."""
    stub = embedding_pb2_grpc.EmbeddingServiceStub(channel)

    async def call(some: Sequence[str]) -> list[Sequence[float]]:
        request = embedding_pb2.EmbedRequest(texts=some, input_type=input_type)
        answer: embedding_pb2.EmbedResponse = await stub.Embed(request, timeout=CALL_TIMEOUT_S)
        return [embedding.values for embedding in answer.embeddings]

    calls = [texts[start : start + TEXTS] for start in range(0, len(texts), TEXTS)]
    return np.array([vector for part in await few_at_once(call, calls) for vector in part], np.float32)


async def few_at_once(work: Callable[[T], Awaitable[U]], items: Sequence[T]) -> list[U]:
    """Results in the order of `items`."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(item: T) -> U:
        async with slots:
            return await work(item)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(item)) for item in items]
    return [task.result() for task in tasks]


async def _count_ready(api: httpx.AsyncClient, kb: str) -> int:
    counts = (await api.get(f"/knowledge-bases/{kb}")).raise_for_status().json()
    if counts["failed_count"]:
        raise RuntimeError(f"{counts['failed_count']} documents failed")
    return int(counts["ready_count"])
