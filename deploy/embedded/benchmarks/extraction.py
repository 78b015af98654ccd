"""Files to chunks by the extractor that the service runs, one format after the other.

Each format has a child process of its own, which has read one file before the first figure. Small and large files
alternate, but for the largest, which is read once; the medians count. Memory is the highest resident size of the
child and what it started (pandoc, LibreOffice), looked at every 10 ms: what they share counts for each.
"""

import asyncio
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from deploy.embedded.benchmarks.files import make_file
from deploy.embedded.benchmarks.memory import PeakMemory
from deploy.embedded.benchmarks.report import log, report
from kbmesh.models import bundled_model_path
from services.ingest.adapters.extraction import ChildExtractor
from services.ingest.domain.content_type import OLD_OFFICE, ContentType

MB: Final = 1e6
ROUNDS: Final = 3
TIMEOUT_S: Final = 600
ONCE_FROM: Final = 300  # pages; long enough to be steady
PAGES: Final[dict[ContentType, tuple[int, ...]]] = {ContentType.PDF: (1, 100, 300), ContentType.EML: (1, 10)}
PAGES_OTHERWISE: Final = (1, 100)


def bench(*, quick: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="kbmesh-bench-") as directory:
        for content_type in ContentType:
            if content_type in OLD_OFFICE and shutil.which("soffice") is None:
                log(f"{content_type.name}: no LibreOffice here, left out")
                continue
            pages = [pages for pages in PAGES.get(content_type, PAGES_OTHERWISE) if pages < ONCE_FROM or not quick]
            files = {count: make_file(Path(directory), content_type, count) for count in pages}
            # An event loop of its own ends its child process with it.
            asyncio.run(measure(content_type, files, rounds=1 if quick else ROUNDS))


async def measure(content_type: ContentType, files: dict[int, Path], rounds: int) -> None:
    extractor = ChildExtractor(bundled_model_path() / "tokenizer.json", timeout=TIMEOUT_S)
    await extractor.warm()
    seconds: dict[int, list[float]] = {pages: [] for pages in files}
    async with PeakMemory.of_children() as memory:
        idle = memory.idle
        await extractor.extract(next(iter(files.values())), content_type)
        for number in range(rounds):
            for pages, path in files.items():
                if number and pages >= ONCE_FROM:
                    continue
                started = time.perf_counter()
                chunks = await extractor.extract(path, content_type)
                seconds[pages].append(time.perf_counter() - started)
                if not chunks:
                    raise RuntimeError(f"no text in {path.name}")
    for pages, taken in seconds.items():
        size = files[pages].stat().st_size
        median = statistics.median(taken)
        log(f"{content_type.name}, {pages} pages: {median:.2f} s")
        figures = {"format": content_type.name.lower(), "pages": pages, "bytes": size, "rounds": len(taken)}
        report("extraction_pages_per_s", pages / median, **figures)
        report("extraction_mb_per_s", size / MB / median, **figures)
    report("extraction_peak_bytes", memory.peak, format=content_type.name.lower(), idle=idle, pages=max(files))
