"""Webhooks in tests: a sender, receivers that are real servers, and the checks that a receiver makes."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import httpx

from kbmesh.messaging import Topics
from services.ingest.adapters.endpoints import HttpEndpoints
from services.ingest.domain.webhooks import EventStatus, StatusEvent
from services.ingest.entrypoints.http import Gateway
from services.ingest.handlers.delivering import DeliveryPolicy, WebhookSender
from tests.support.consuming import running

TOPICS = Topics("kbmesh")
TIMEOUT_S = 20


@dataclass
class Receiver:
    """An HTTP server that notes what it gets; `answers` come first, then 200s."""

    url: str = ""
    answers: list[int] = field(default_factory=list)
    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    hold: asyncio.Event | None = None

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)
            }
            self.received.append((headers, await reader.readexactly(int(headers["content-length"]))))
            if self.hold is not None:
                await self.hold.wait()
            status = self.answers.pop(0) if self.answers else 200
            location = f"location: {self.url}/elsewhere\r\n" if status == 302 else ""
            writer.write(f"HTTP/1.1 {status} X\r\n{location}content-length: 0\r\n\r\n".encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def events(self) -> list[str]:
        return [json.loads(body)["type"] for _, body in self.received]


@asynccontextmanager
async def receiving(**options: Any) -> AsyncIterator[Receiver]:
    receiver = Receiver(**options)
    server = await asyncio.start_server(receiver.handle, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield receiver
    finally:
        if receiver.hold is not None:
            receiver.hold.set()
        server.close()


@asynccontextmanager
async def sending(
    gateway: Gateway, *, retry_s: tuple[float, ...] = (0.01, 0.01, 0.01), timeout_s: float = 5, in_flight: int = 8
) -> AsyncIterator[WebhookSender]:
    endpoints = HttpEndpoints(allow_private=True, timeout_s=timeout_s)
    policy = DeliveryPolicy(gateway.webhook_key, retry_s, in_flight, poll_s=0.02)
    sender = WebhookSender(gateway.webhooks, endpoints, policy)
    async with running(sender.run):
        yield sender
    await endpoints.close()


async def create(http: httpx.AsyncClient, endpoint: str, **fields: Any) -> dict[str, Any]:
    answer = await http.post("/webhooks", json={"endpoint": endpoint, **fields})
    assert answer.status_code == 201, answer.text
    created: dict[str, Any] = answer.json()
    return created


async def create_kb(http: httpx.AsyncClient, **fields: str) -> UUID:
    return UUID((await http.post("/knowledge-bases", json={"name": "Finance", **fields})).json()["id"])


def happened(kb_id: UUID, status: str = "ready", **fields: Any) -> StatusEvent:
    values: dict[str, Any] = {
        "id": str(uuid4()),
        "document_id": uuid4(),
        "kb_id": kb_id,
        "revision": 1,
        "status": EventStatus(status),
        "error_code": None,
        "chunk_count": 3,
        "embedded_count": 3,
        "occurred_at": datetime.now(UTC),
    }
    return StatusEvent(**values | fields)


async def log_of(http: httpx.AsyncClient, webhook: dict[str, Any]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await http.get(f"/webhooks/{webhook['id']}/deliveries")).json()["items"]
    return items


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await condition():
            await asyncio.sleep(0.01)


async def until_settled(http: httpx.AsyncClient, webhook: dict[str, Any]) -> list[dict[str, Any]]:
    async def settled() -> bool:
        return all(item["status"] != "pending" for item in await log_of(http, webhook))

    await until(settled)
    return await log_of(http, webhook)


def verify(secret: str, headers: dict[str, str], body: bytes, *, signatures: int = 1) -> None:
    """As a receiver does it, from the text of the specification alone."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = headers["webhook-id"].encode() + b"." + headers["webhook-timestamp"].encode() + b"." + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    found = headers["webhook-signature"].split(" ")
    assert f"v1,{expected}" in found
    assert len(found) == signatures
    assert abs(int(headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 60
