"""An HTTP server that answers like an embeddings endpoint, or as badly as a test wants."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

DIMENSIONS = 4


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Cut:
    """The connection ends in the middle of an answer."""


@dataclass
class Hang:
    """No answer ever comes."""


Script = Callable[[Sequence[str]], "Answer | Cut | Hang"]


def embeddings(rows: Sequence[Any], order: Sequence[int] | None = None) -> Answer:
    """`rows` in the API's form, listed in `order`."""
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
    listed = [data[index] for index in (order or range(len(data)))]
    return Answer(body=json.dumps({"object": "list", "data": listed, "usage": {"prompt_tokens": 9}}).encode())


def vectors(texts: Sequence[str]) -> Answer:
    return embeddings([[len(text), 1, 0, 0] for text in texts])


@dataclass
class EmbeddingsEndpoint:
    """What `script` holds comes first, one entry per request; then `then` answers."""

    url: str = ""
    script: list[Answer | Cut | Hang] = field(default_factory=list)
    then: Script = vectors
    requests: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    waiting: int = 0
    """Requests that hang."""
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {
                    name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)
                }
                request = json.loads(await reader.readexactly(int(headers["content-length"])))
                self.requests.append((headers, request))
                answer = self.script.pop(0) if self.script else self.then(request["input"])
                if isinstance(answer, Hang):
                    self.waiting += 1
                    await self.release.wait()
                    answer = vectors(request["input"])
                if isinstance(answer, Cut):
                    writer.write(b'HTTP/1.1 200 X\r\ncontent-length: 999\r\n\r\n{"data"')
                    await writer.drain()
                    return
                lines = [f"{name}: {value}\r\n" for name, value in answer.headers.items()]
                lines.append(f"content-length: {len(answer.body)}\r\n\r\n")
                writer.write(f"HTTP/1.1 {answer.status} X\r\n{''.join(lines)}".encode() + answer.body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    @property
    def batches(self) -> list[int]:
        """Texts of each request."""
        return [len(request["input"]) for _, request in self.requests]


@asynccontextmanager
async def answering() -> AsyncIterator[EmbeddingsEndpoint]:
    endpoint = EmbeddingsEndpoint()
    server = await asyncio.start_server(endpoint.handle, "127.0.0.1", 0)
    endpoint.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/embeddings"
    try:
        yield endpoint
    finally:
        endpoint.release.set()
        server.close()
