"""Event streams in tests, over a real server: httpx's in-process transport does not stream."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from kbmesh.http import HttpSettings, serve_http
from kbmesh.messaging import Topics
from kbmesh.postgres import PostgresSettings
from services.ingest.adapters.postgres import listen_for_documents
from services.ingest.entrypoints.http import Gateway, create_app
from services.ingest.handlers.watching import Watches, WatchLimits
from tests.support.gateway import ALICE, bearer

TOPICS = Topics("kbmesh")
LIMITS = WatchLimits(per_process=3, per_principal=2, heartbeat_s=30, reread_s=600, pause_s=0)


@dataclass
class Stream:
    """Reads events; a comment counts as the event `alive`."""

    response: httpx.Response
    lines: AsyncIterator[str]

    async def next(self) -> tuple[str, dict[str, Any]]:
        name, data = "", "{}"
        async with asyncio.timeout(10):
            async for line in self.lines:
                field, _, value = line.partition(":")
                match field:
                    case "event":
                        name = value.strip()
                    case "data":
                        data = value
                    case "" if value:
                        name = "alive"
                    case "" if name:
                        return name, json.loads(data)
        return "end", {}

    async def until_complete(self) -> list[dict[str, Any]]:
        """The documents that the stream begins with."""
        documents = []
        while (event := await self.next())[0] == "document":
            documents.append(event[1])
        assert event[0] == "complete"
        return documents


@dataclass
class Server:
    http: httpx.AsyncClient
    gateway: Gateway

    @asynccontextmanager
    async def stream(self, path: str, **headers: str) -> AsyncIterator[Stream]:
        async with self.http.stream("GET", path, headers=headers) as response:
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            yield Stream(response, response.aiter_lines())

    async def refused(self, path: str) -> tuple[int, str]:
        answer = await self.http.get(path)
        return answer.status_code, answer.json()["code"]

    async def create_kb(self) -> str:
        created: dict[str, str] = (await self.http.post("/knowledge-bases", json={"name": "Finance"})).json()
        return created["id"]

    async def upload(self, kb: str, name: str = "policy.txt", data: bytes = b"Revenue is booked.") -> str:
        answer = await self.http.post(f"/knowledge-bases/{kb}/documents", params={"filename": name}, content=data)
        document_id: str = answer.json()["document_id"]
        return document_id


@asynccontextmanager
async def serving(gateway: Gateway) -> AsyncIterator[Server]:
    async with (
        serve_http(create_app(gateway), HttpSettings(stop_grace_s=5)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=bearer(ALICE), timeout=10) as http,
    ):
        try:
            yield Server(http, gateway)
        finally:
            gateway.watches.close()


@asynccontextmanager
async def listening(settings: PostgresSettings, watches: Watches) -> AsyncIterator[asyncio.Queue[None]]:
    """A queue with an entry for each time that it has begun to listen."""
    begun: asyncio.Queue[None] = asyncio.Queue()

    def connected() -> None:
        begun.put_nowait(None)
        watches.changed_unheard()

    task = asyncio.create_task(listen_for_documents(settings, watches.changed, connected))
    try:
        await asyncio.wait_for(begun.get(), 10)
        yield begun
    finally:
        task.cancel()
        await asyncio.wait([task])
