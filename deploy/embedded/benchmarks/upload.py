"""Uploads through the gateway against a plain copy of the same files into the same store.

The gateway is a process that does nothing else: what it takes in is not extracted. A plain copy reads the file and
writes it with the store's own adapter, 1 MiB at a time, so that both sides end with the same calls to make it
durable. Sides alternate, each round begins with another one, the first round is not counted. A disk that takes
writes as fast as memory does leaves the ratio to processor time, of which a quarter is SHA-256. Memory is the
resident size of the gateway, looked at every 10 ms, above what it was before.
"""

import asyncio
import http.client
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from deploy.embedded.benchmarks.memory import PeakMemory
from deploy.embedded.benchmarks.report import log, report
from deploy.embedded.directory import DataDirectory
from deploy.embedded.stack import StackAddresses, StackOptions, running_stack
from services.ingest.adapters.directory import DirectoryStore

MB: Final = 1_000_000
ROUNDS: Final = 5
LARGEST: Final = 1000 * MB
COPY_BYTES: Final = 1024 * 1024
TIMEOUT_S: Final = 120
LINE: Final = b"Silver keeps one row per meter, interval and register, with the highest quality flag.\n"
BOUNDARY: Final = "------------------------d74496d66958873e"
CASES: Final = ((1, 1), (20, 1), (20, 4), (200, 1))
"""Megabytes, and clients that send as much at the same time."""
ENVIRONMENT: Final = {
    "KBMESH_INGEST_ROLES": '["gateway"]',
    "KBMESH_INGEST_UPLOAD__MAX_BYTES": str(LARGEST + MB),
}

Side = Callable[[Sequence[Path]], Awaitable[float]]


def bench(*, quick: bool) -> None:
    asyncio.run(_bench(quick))


async def _bench(quick: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="kbmesh-bench-", ignore_cleanup_errors=True) as directory:
        options = StackOptions.throwaway(Path(directory, "stack"), ENVIRONMENT)
        async with (
            running_stack(options, log) as stack,
            httpx.AsyncClient(base_url=stack.http_url, timeout=TIMEOUT_S, trust_env=False) as api,
        ):
            gateway = _Uploads(
                stack, api, (await api.post("/knowledge-bases", json={"name": "Bench"})).json()["id"]
            )
            copies = _Copies(DirectoryStore(DataDirectory(stack.data_dir).objects))
            sides: dict[str, Side] = {"form": gateway.form, "raw": gateway.raw, "copy": copies.copy}
            await gateway.raw([make_text(Path(directory), 1 * MB)])
            await measure_memory(stack, gateway, Path(directory), 100 * MB if quick else LARGEST)
            for size, clients in CASES:
                if quick and size > 20:
                    continue
                files = [make_text(Path(directory), size * MB, number) for number in range(clients)]
                await compare(sides, files, rounds=1 if quick else ROUNDS)


def make_text(folder: Path, size: int, number: int = 0) -> Path:
    """A text file of `size` bytes."""
    path = folder / f"{size}-{number}.txt"
    block = LINE * (COPY_BYTES // len(LINE))
    with path.open("wb") as file:
        for start in range(0, size, len(block)):
            file.write(block[: size - start])
    return path


async def measure_memory(stack: StackAddresses, gateway: "_Uploads", folder: Path, size: int) -> None:
    path = make_text(folder, size)
    pid = json.loads((DataDirectory(stack.data_dir).run / "ingest.pid").read_text())["pid"]
    for name, side in (("form", gateway.form), ("raw", gateway.raw)):
        async with PeakMemory.of(pid) as memory:
            await side([path])
        figures = {"side": name, "bytes": size, "idle": memory.idle}
        report("gateway_bytes_above_idle", memory.peak - memory.idle, **figures)


async def compare(sides: dict[str, Side], files: Sequence[Path], rounds: int) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    order = list(sides.items())
    for number in range(rounds + 1):
        for name, side in order:
            taken = await side(files)
            if number:  # the first warms all sides
                seconds[name].append(taken)
        order.append(order.pop(0))
    size = files[0].stat().st_size
    megabytes = size * len(files) / MB
    figures = {"bytes": size, "clients": len(files), "rounds": rounds}
    copying = seconds.pop("copy")
    report("plain_copy_mb_per_s", megabytes / statistics.median(copying), **figures)
    for name, taking in seconds.items():
        ratios = [copy / upload for copy, upload in zip(copying, taking, strict=True)]
        report("upload_mb_per_s", megabytes / statistics.median(taking), side=name, **figures)
        spread = [round(min(ratios), 2), round(max(ratios), 2)]
        report("upload_vs_plain_copy", statistics.median(ratios), side=name, spread=spread, **figures)


class _Uploads:
    """Both ways to upload; each client has a thread and a connection of its own."""

    def __init__(self, stack: StackAddresses, api: httpx.AsyncClient, kb: str) -> None:
        self._host = urlsplit(stack.http_url).netloc
        self._api = api
        self._target = f"/knowledge-bases/{kb}/documents"

    async def form(self, files: Sequence[Path]) -> float:
        return await self._all(self._send_form, files)

    async def raw(self, files: Sequence[Path]) -> float:
        return await self._all(self._send_raw, files)

    async def _all(self, send: Callable[[Path], str], files: Sequence[Path]) -> float:
        """Seconds until the last is answered. Then the documents are removed."""
        started = time.perf_counter()
        documents = await asyncio.gather(*(asyncio.to_thread(send, path) for path in files))
        seconds = time.perf_counter() - started
        for document in documents:
            (await self._api.delete(f"/documents/{document}")).raise_for_status()
        return seconds

    def _send_form(self, path: Path) -> str:
        disposition = f'Content-Disposition: form-data; name="file"; filename="{path.name}"'
        head = f"--{BOUNDARY}\r\n{disposition}\r\nContent-Type: text/plain\r\n\r\n"
        content_type = f"multipart/form-data; boundary={BOUNDARY}"
        return self._send(self._target, content_type, head.encode(), path, f"\r\n--{BOUNDARY}--\r\n".encode())

    def _send_raw(self, path: Path) -> str:
        return self._send(f"{self._target}?filename={path.name}", "application/octet-stream", b"", path, b"")

    def _send(self, target: str, content_type: str, head: bytes, path: Path, tail: bytes) -> str:
        """The id of the document. The kernel sends the file: this process costs the gateway little time."""
        connection = http.client.HTTPConnection(self._host, timeout=TIMEOUT_S)
        try:
            connection.putrequest("POST", target)
            connection.putheader("Content-Type", content_type)
            connection.putheader("Content-Length", str(len(head) + path.stat().st_size + len(tail)))
            connection.endheaders(head or None)
            with path.open("rb") as file:
                connection.sock.sendfile(file)
            connection.sock.sendall(tail)
            answer = connection.getresponse()
            body = json.load(answer)
        finally:
            connection.close()
        if answer.status != http.client.ACCEPTED:
            raise RuntimeError(f"the gateway answered {answer.status}: {body}")
        return str(body["document_id"])


class _Copies:
    def __init__(self, store: DirectoryStore) -> None:
        self._store = store

    async def copy(self, files: Sequence[Path]) -> float:
        """Seconds until the last is stored. Then the copies are removed."""
        keys = [f"copies/{path.name}" for path in files]
        started = time.perf_counter()
        await asyncio.gather(*(self._store.put(key, _pieces(path)) for key, path in zip(keys, files, strict=True)))
        seconds = time.perf_counter() - started
        for key in keys:
            await self._store.delete(key)
        return seconds


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(COPY_BYTES):
            yield data
