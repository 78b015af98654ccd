"""The embedder as it is started, with a model on this machine and with one behind an endpoint."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import HttpUrl

from deploy.embedded.ports import free_ports
from kbmesh.auth import AuthMode, AuthSettings
from kbmesh.embedding.v1 import embedding_pb2, embedding_pb2_grpc
from kbmesh.http import HttpSettings
from kbmesh.messaging import KafkaSettings
from kbmesh.postgres import Pool, PostgresSettings
from kbmesh.rpc import GrpcSettings
from kbmesh.rpc.status import reason
from services.embedder.bootstrap import bootstrap
from services.embedder.settings import EmbedderSettings, ModelSettings
from tests.support.embedding import equal, publish, statuses, until
from tests.support.endpoint import Answer, answering, vectors
from tests.support.sources import add_document

pytestmark = pytest.mark.broker


async def test_the_whole_service_embeds_a_hundred_documents_and_answers_queries(
    pool: Pool, postgres_settings: PostgresSettings, kafka_settings: KafkaSettings
) -> None:
    documents = [await add_document(pool, f"Table number {n} holds orders.") for n in range(100)]
    port, http_port = free_ports(2)
    settings = EmbedderSettings(
        postgres=postgres_settings,
        kafka=kafka_settings,
        auth=AuthSettings(mode=AuthMode.OFF),
        grpc=GrpcSettings(port=port),
        http=HttpSettings(port=http_port),
        device="cpu",
        precision="fp32",
        threads=1,
    )
    async with (
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{http_port}", timeout=10) as http,
    ):
        states = asyncio.create_task(_states_until_serving(channel))
        async with bootstrap(settings):
            await publish(kafka_settings, documents)
            await until(lambda: equal(statuses(pool), {"ready": 100}))
            embed = embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed
            answer = await embed(embedding_pb2.EmbedRequest(texts=["Table number 7 holds orders."]), timeout=10)
            ready = await http.get("/health/ready")
            models = (await http.get("/v1/models")).json()["data"]
            over_http = await http.post(
                "/v1/embeddings",
                json={"model": "all-MiniLM-L6-v2", "input": "Table number 7 holds orders.", "dimensions": 256},
            )
    assert set((await states)[:-1]) == {"NOT_SERVING"}
    assert (answer.space_id, answer.dimensions) == ("all_minilm_l6_v2_384", 384)
    nearest = await pool.fetchrow(
        "SELECT c.content, 1 - (v.embedding <=> $1) AS cosine FROM vectors_all_minilm_l6_v2_384 v"
        " JOIN chunks c ON c.id = v.chunk_id ORDER BY v.embedding <=> $1 LIMIT 1",
        list(answer.embeddings[0].values),
    )
    assert ready.status_code == 200
    assert {model["id"] for model in models} == {"all-MiniLM-L6-v2", "all_minilm_l6_v2_384"}
    cut = np.array(answer.embeddings[0].values[:256])
    assert over_http.json()["data"][0]["embedding"] == pytest.approx(cut / np.linalg.norm(cut), abs=1e-5)
    assert nearest is not None
    assert nearest["content"] == "Table number 7 holds orders."
    assert nearest["cosine"] > 0.9999


async def test_the_whole_service_embeds_with_a_model_behind_an_endpoint(
    pool: Pool, postgres_settings: PostgresSettings, kafka_settings: KafkaSettings
) -> None:
    documents = [await add_document(pool, "a", "bb"), await add_document(pool, "bad", "good")]
    [port] = free_ports(1)
    async with answering() as endpoint, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        endpoint.then = lambda texts: Answer(400) if "bad" in str(texts) else vectors(texts)
        settings = EmbedderSettings(
            postgres=postgres_settings,
            kafka=kafka_settings,
            auth=AuthSettings(mode=AuthMode.OFF),
            grpc=GrpcSettings(port=port),
            http=HttpSettings(),
            model=ModelSettings(provider="openai", name="far", url=HttpUrl(endpoint.url), query_prompt="search: "),
            # One that cannot be opened keeps nobody from serving with the other.
            next_model=ModelSettings(path=Path("/nowhere/next")),
        )
        async with bootstrap(settings):
            await publish(kafka_settings, documents)
            await until(lambda: equal(statuses(pool), {"ready": 1, "failed": 1}))
            embed = embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed
            answer = await embed(embedding_pb2.EmbedRequest(texts=["where?"]), timeout=10)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await embed(embedding_pb2.EmbedRequest(texts=["bad"]), timeout=10)
    assert (answer.space_id, answer.dimensions) == ("far_4", 4)
    assert answer.embeddings[0].values == pytest.approx([14 / 197**0.5, 1 / 197**0.5, 0, 0])
    assert (refused.value.code(), reason(refused.value)) == (grpc.StatusCode.INVALID_ARGUMENT, "TEXT_REFUSED")
    assert await pool.fetchval("SELECT count(*) FROM vectors_far_4") == 3


async def _states_until_serving(channel: grpc.aio.Channel) -> list[str]:
    """What health checks see while the service starts."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    seen: list[str] = []
    while "SERVING" not in seen:
        response = await stub.Check(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=60)
        seen.append(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))
        await asyncio.sleep(0.05)
    return seen
