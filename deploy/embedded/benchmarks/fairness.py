"""How long a document of one page takes from its 202 to ready: alone, and beside documents of a thousand pages.

The large ones are uploaded first. Small ones follow, one after the other, while the large ones are extracted, and
then while they are embedded. Each has an id of its own, so that they come to lie in the partitions of the large
ones as well as in others.
"""

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import httpx
from fpdf import FPDF

from deploy.embedded.benchmarks.report import log, report
from deploy.embedded.stack import StackAddresses, StackOptions, running_stack

EXAMPLE: Final = Path(__file__).parents[3] / "examples" / "source" / "handbook.md"
PAGES: Final = 1000
WORDS: Final = 400  # of a page
SAMPLES: Final = 12
POLL_S: Final = 0.05
TIMEOUT_S: Final = 900
ENVIRONMENT: Final = {"KBMESH_INGEST_EXTRACTION__TIMEOUT_S": str(TIMEOUT_S)}  # also on a slow machine


def make_pdf(pages: int, seed: int) -> bytes:
    """Pages full of the words of an example, no two alike."""
    dice = random.Random(seed)  # noqa: S311 - the same texts in every run
    words = EXAMPLE.read_text(encoding="ascii", errors="ignore").split()
    pdf = FPDF()
    pdf.set_font("helvetica", size=10)
    for page in range(pages):
        pdf.add_page()
        prose = " ".join(dice.choices(words, k=WORDS))
        pdf.multi_cell(0, 5, f"This is page {page} of file {seed}. {prose}")
    return bytes(pdf.output())


class Client:
    def __init__(self, api: httpx.AsyncClient, kb: str) -> None:
        self._api = api
        self._kb = kb
        self._uploads = 0

    async def upload(self, pdf: bytes) -> str:
        self._uploads += 1
        answer = await self._api.post(
            f"/knowledge-bases/{self._kb}/documents", params={"filename": f"{self._uploads}.pdf"}, content=pdf
        )
        answer.raise_for_status()
        document: str = answer.json()["document_id"]
        return document

    async def status(self, document: str) -> str:
        found = (await self._api.get(f"/documents/{document}")).json()
        if found["status"] == "failed":
            raise RuntimeError(f"a document failed: {found['error_code']}")
        status: str = found["status"]
        return status

    async def seconds_to_ready(self, pdf: bytes) -> float:
        document = await self.upload(pdf)
        started = time.perf_counter()
        async with asyncio.timeout(TIMEOUT_S):
            while await self.status(document) != "ready":  # noqa: ASYNC110 - asked as a client would
                await asyncio.sleep(POLL_S)
        return time.perf_counter() - started

    async def delete(self, document: str) -> None:
        (await self._api.delete(f"/documents/{document}")).raise_for_status()


async def measure(stack: StackAddresses, *, pages: int, samples: int, large_counts: Sequence[int]) -> None:
    small = [make_pdf(1, seed) for seed in range(1000, 1000 + samples)]
    large = await asyncio.to_thread(make_pdf, pages, 0)
    async with httpx.AsyncClient(base_url=stack.http_url, timeout=60, trust_env=False) as api:
        kb: str = (await api.post("/knowledge-bases", json={"name": "Bench"})).json()["id"]
        client = Client(api, kb)
        await client.seconds_to_ready(small[0])  # warms
        alone = [await client.seconds_to_ready(pdf) for pdf in small]
        tell(alone, alone, beside="nothing", large=0, bytes=len(small[0]))
        for count in large_counts:
            documents = [await client.upload(large) for _ in range(count)]
            for phase, states in (("extraction", {"pending", "processing"}), ("embedding", {"embedding"})):
                await wait_for(client, documents[0], phase)
                beside = [seconds async for seconds in samples_beside(client, small, documents, states)]
                tell(beside, alone, beside=phase, large=count, pages=pages, bytes=len(large))
            for document in documents:
                await client.delete(document)


async def wait_for(client: Client, document: str, phase: str) -> None:
    wanted = {"extraction": {"processing"}, "embedding": {"embedding", "ready"}}[phase]
    async with asyncio.timeout(TIMEOUT_S):
        while await client.status(document) not in wanted:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)


async def samples_beside(
    client: Client, small: Sequence[bytes], documents: Sequence[str], states: set[str]
) -> AsyncIterator[float]:
    """Seconds of those that were ready while a large one was still in one of the states."""
    for pdf in small:
        seconds = await client.seconds_to_ready(pdf)
        if not {await client.status(document) for document in documents} & states:
            return
        yield seconds


def tell(seconds: Sequence[float], alone: Sequence[float], *, beside: str, **figures: object) -> None:
    if not seconds:
        log(f"beside {beside}: over before a small document was ready")
        return
    figures = {"beside": beside, "samples": len(seconds), **figures}
    report("small_ready_s", statistics.median(seconds), max=round(max(seconds), 2), **figures)
    if seconds is not alone:
        report("small_ready_vs_alone", statistics.median(seconds) / statistics.median(alone), **figures)


async def run(*, pages: int, samples: int, large_counts: Sequence[int]) -> None:
    with tempfile.TemporaryDirectory(prefix="kbmesh-bench-", ignore_cleanup_errors=True) as directory:
        async with running_stack(StackOptions.throwaway(Path(directory), ENVIRONMENT), log) as stack:
            await measure(stack, pages=pages, samples=samples, large_counts=large_counts)


def bench(*, quick: bool) -> None:
    if quick:
        asyncio.run(run(pages=200, samples=3, large_counts=(1,)))
    else:
        asyncio.run(run(pages=PAGES, samples=SAMPLES, large_counts=(1, 3)))
