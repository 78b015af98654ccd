"""The child process: what it yields, and that nothing in it can hurt the service."""

import importlib
import os
import subprocess
import time
from pathlib import Path

import anyio
import pytest
import pytest_asyncio
from fpdf import FPDF

from kbmesh.errors import KbmeshError, Unavailable
from kbmesh.models import bundled_model_path
from kbmesh.provenance import Category
from services.ingest.adapters.extraction import GIB, Child, ChildExtractor
from services.ingest.domain.content_type import ContentType
from services.ingest.domain.extraction import ExtractionFailed
from services.ingest.domain.headers import Origin
from tests.support.files import by_pandoc, needs_tesseract, scan

TOKENIZER = bundled_model_path() / "tokenizer.json"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module", autouse=True)
async def pool() -> None:
    # anyio ends the processes of its pool with the task that first used it: a service's main task, but here one
    # test's. This fixture is that task, so that the tests after it can share a warm child. It also leaves a dead
    # process behind, which warming up must get over.
    await Child().run(os.getpid, timeout=30)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def extractor(pool: None) -> ChildExtractor:
    extractor = ChildExtractor(TOKENIZER)
    await extractor.warm()
    return extractor


async def code_of_failure(child: Child, *call: object, timeout: float = 30) -> str:
    function, *args = call
    with pytest.raises(ExtractionFailed) as caught:
        await child.run(function, *args, timeout=timeout)  # type: ignore[arg-type]  # any callable
    return caught.value.code


async def test_a_warm_child_reads_a_pdf_with_its_pages(extractor: ChildExtractor, tmp_path: Path) -> None:
    pdf = FPDF()
    for page in (1, 2):
        pdf.add_page()
        pdf.set_font("helvetica", size=11)
        pdf.multi_cell(0, 6, f"This is page {page} of the report. " + "Rows are kept for seven years. " * 80)
    pdf.output(str(tmp_path / "a.pdf"))
    origin = Origin("report 2026.pdf", Category.STRATEGY)
    drafts = await extractor.extract(tmp_path / "a.pdf", ContentType.PDF, origin)
    assert [draft.ordinal for draft in drafts] == list(range(len(drafts)))
    assert {draft.page for draft in drafts} == {1, 2}
    assert all(draft.token_count <= 510 for draft in drafts)
    assert all(draft.header.startswith("File: report 2026.pdf\nCategory: strategy") for draft in drafts)


async def test_the_child_does_not_load_torch_which_is_half_a_gigabyte(extractor: ChildExtractor) -> None:
    with pytest.raises(ModuleNotFoundError):
        await extractor._child.run(importlib.import_module, "torch", timeout=30)


async def test_errors_of_a_file_cross_the_process_boundary(extractor: ChildExtractor, tmp_path: Path) -> None:
    (tmp_path / "bad.pdf").write_bytes(b"%PDF-1.7\nnothing of the kind\n%%EOF\n")
    with pytest.raises(ExtractionFailed) as caught:
        await extractor.extract(tmp_path / "bad.pdf", ContentType.PDF)
    assert caught.value.code == "corrupt_file"


async def test_callers_take_turns_and_an_empty_file_has_no_chunks(
    extractor: ChildExtractor, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "a.md").write_text("# Orders\n\nOne row an order.")
    counts: dict[str, int] = {}

    async def extract(name: str, content_type: ContentType) -> None:
        counts[name] = len(await extractor.extract(tmp_path / name, content_type))

    async with anyio.create_task_group() as group:
        group.start_soon(extract, "empty.txt", ContentType.TEXT)
        group.start_soon(extract, "a.md", ContentType.MARKDOWN)
    assert counts == {"empty.txt": 0, "a.md": 1}


async def test_two_processes_read_two_files_at_once_once_both_are_there(pool: None, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("Rows are kept for seven years. " * 30_000)
    (tmp_path / "short.txt").write_text("Rows are kept.")
    extractor = ChildExtractor(TOKENIZER, processes=2)
    await extractor.warm_all()
    finished: list[str] = []

    async def extract(name: str) -> None:
        assert await extractor.extract(tmp_path / name, ContentType.TEXT)
        finished.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(extract, "long.txt")
        group.start_soon(extract, "short.txt")
    assert finished == ["short.txt", "long.txt"]


async def test_the_child_reads_what_needs_a_process_of_its_own(extractor: ChildExtractor, tmp_path: Path) -> None:
    for target_format, content_type in (("odt", ContentType.ODT), ("epub3", ContentType.EPUB)):
        path = by_pandoc(tmp_path / target_format, target_format, "Book")
        drafts = await extractor.extract(path, content_type)
        assert "number of the order" in drafts[-1].content


@needs_tesseract
async def test_the_child_reads_scans_in_the_languages_that_it_is_given(pool: None, tmp_path: Path) -> None:
    path = scan(tmp_path / "a.pdf", "Rows are kept for seven years.", "Owners check each of them.")
    drafts = await ChildExtractor(TOKENIZER, ocr_languages="eng").extract(path, ContentType.PDF)
    assert [(draft.page, draft.content[:4]) for draft in drafts] == [(1, "Rows")]
    assert "Owners check each of them." in drafts[0].content
    assert await ChildExtractor(TOKENIZER).extract(path, ContentType.PDF) == []


async def test_a_document_that_takes_too_long_is_given_up_and_the_next_one_served(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("Rows are kept for seven years. " * 60_000)
    (tmp_path / "short.txt").write_text("Rows are kept.")
    extractor = ChildExtractor(TOKENIZER, timeout=1.5)
    with pytest.raises(ExtractionFailed) as caught:
        await extractor.extract(tmp_path / "long.txt", ContentType.TEXT)
    assert caught.value.code == "extraction_timeout"
    (draft,) = await extractor.extract(tmp_path / "short.txt", ContentType.TEXT)
    assert draft.content == "Rows are kept."


async def test_a_hanging_child_is_killed_not_left_behind() -> None:
    child = Child()
    first = await child.run(os.getpid, timeout=30)
    assert await code_of_failure(child, time.sleep, 60, timeout=0.2) == "extraction_timeout"
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert await child.run(os.getpid, timeout=30) != first


async def test_a_cancelled_caller_takes_the_child_down() -> None:
    child = Child()
    first = await child.run(os.getpid, timeout=30)
    with anyio.move_on_after(0.2):
        await child.run(time.sleep, 60, timeout=30)
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


async def test_a_child_that_dies_is_replaced() -> None:
    child = Child()
    assert await code_of_failure(child, os._exit, 3) == "extraction_crashed"
    assert await code_of_failure(child, os.abort) == "extraction_crashed"
    assert await child.run(len, "next", timeout=30) == 4


async def test_memory_is_capped_and_the_swollen_child_replaced() -> None:
    child = Child(memory_bytes=GIB // 2)
    first = await child.run(os.getpid, timeout=30)
    assert await code_of_failure(child, bytearray, 2 * GIB) == "extraction_memory"
    assert await child.run(os.getpid, timeout=30) != first


async def test_what_the_child_prints_does_not_reach_the_results() -> None:
    child = Child()
    await child.run(print, "noise", timeout=30)
    assert await child.run(os.write, 1, b"RETURN 3\nnoise", timeout=30) == 14
    assert await child.run(subprocess.call, ["/bin/echo", "noise"], timeout=30) == 0
    assert await child.run(len, "next", timeout=30) == 4


async def test_a_child_that_cannot_load_its_libraries_is_an_outage_not_a_bad_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Rows are kept.")
    extractor = ChildExtractor(TOKENIZER, memory_bytes=GIB // 4)
    with pytest.raises(KbmeshError) as caught:
        await extractor.extract(tmp_path / "a.txt", ContentType.TEXT)
    assert isinstance(caught.value, Unavailable)
