"""One stack for all tests of this folder, as its users meet it."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest_asyncio

from deploy.embedded.stack import StackAddresses, StackOptions, running_stack
from kbmesh.rpc import ChannelSettings, open_channel
from kbmesh.search.v1.search_pb2 import KbSearchRequest, Passage
from kbmesh.search.v1.search_pb2_grpc import SearchServiceStub
from tests.support.models import save_model

if TYPE_CHECKING:
    from kbmesh.search.v1.search_pb2_grpc import SearchServiceAsyncStub

SETTLED = {"ready", "empty", "failed"}
TINY_MODEL = "tiny"
"""A second model of the embedder: random, and far smaller."""


@dataclass(frozen=True)
class World:
    addresses: StackAddresses
    http: httpx.AsyncClient
    search: "SearchServiceAsyncStub"

    async def create_kb(self) -> str:
        answer = await self.http.post("/knowledge-bases", json={"name": "Tests"})
        return str(answer.json()["id"])

    async def upload(self, kb: str, name: str, data: bytes, **params: str) -> str:
        answer = await self.http.post(
            f"/knowledge-bases/{kb}/documents", params={"filename": name, **params}, content=data
        )
        assert answer.status_code == 202, answer.text
        return answer.headers["location"]

    async def settled(self, location: str) -> dict[str, object]:
        async with asyncio.timeout(120):
            while True:
                document: dict[str, object] = (await self.http.get(location)).json()
                if document["status"] in SETTLED:
                    return document
                await asyncio.sleep(0.05)

    async def ask(self, kb: str, query: str) -> list[Passage]:
        answer = await self.search.KbSearch(KbSearchRequest(query=query, kb_ids=[kb]), timeout=30)
        assert not answer.degraded, answer.degraded_reason
        return list(answer.passages)

    def pid(self, service: str) -> int:
        pid_file = self.addresses.data_dir / "run" / f"{service}.pid"
        return int(json.loads(pid_file.read_text())["pid"])


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def world() -> AsyncIterator[World]:
    with tempfile.TemporaryDirectory(prefix="kbmesh-e2e-") as directory:
        tiny = await asyncio.to_thread(save_model, Path(directory) / "tiny")
        environment = {
            "KBMESH_EMBEDDER_NEXT_MODEL__PATH": str(tiny),
            "KBMESH_EMBEDDER_NEXT_MODEL__NAME": TINY_MODEL,
        }
        options = StackOptions.throwaway(Path(directory) / "stack", environment)
        async with (
            running_stack(options) as addresses,
            httpx.AsyncClient(base_url=addresses.http_url, timeout=30, trust_env=False) as http,
            open_channel(ChannelSettings(target=addresses.search)) as channel,
        ):
            yield World(addresses, http, SearchServiceStub(channel))
