"""Documents made to hurt whoever reads them: each ends in chunks or a stated code, and the next one is served."""

import os
import random
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio
from fpdf import FPDF

from kbmesh.errors import KbmeshError, UnsupportedType
from kbmesh.models import bundled_model_path
from services.ingest.adapters.extraction import GIB, Child, ChildExtractor
from services.ingest.domain.chunking import MAX_CHUNK_CHARS
from services.ingest.domain.content_type import HEAD_BYTES, ContentType, sniff_head
from services.ingest.domain.extraction import ChunkDraft
from tests.data.make import FOLDER, Case, cases
from tests.support.files import long_pdf, looping_pdf

TOKENIZER = bundled_model_path() / "tokenizer.json"
TIMEOUT = 60.0

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module", autouse=True)
async def pool() -> None:
    # anyio ends the processes of its pool with the task that first used it: see the tests of the child process.
    await Child().run(os.getpid, timeout=30)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def extractor(pool: None) -> ChildExtractor:
    extractor = ChildExtractor(TOKENIZER, timeout=TIMEOUT, memory_bytes=2 * GIB)
    await extractor.warm()
    return extractor


async def outcome(extractor: ChildExtractor, path: Path, content_type: ContentType) -> list[ChunkDraft] | str:
    """The chunks or the code, after their limits and that the next document is served were checked."""
    try:
        result: list[ChunkDraft] | str = await extractor.extract(path, content_type)
    except KbmeshError as error:
        result = error.code
    if not isinstance(result, str):
        assert all(draft.token_count <= 510 and len(draft.content) <= MAX_CHUNK_CHARS for draft in result)
    next_one = path.with_name("next.txt")
    next_one.write_text("Rows are kept.")
    [draft] = await extractor.extract(next_one, ContentType.TEXT)
    assert draft.content == "Rows are kept."
    return result


@pytest.mark.parametrize("case", [*cases()], ids=lambda case: case.name)
async def test_each_file_of_the_corpus_ends_as_its_script_says(
    extractor: ChildExtractor, case: Case, tmp_path: Path
) -> None:
    content = (FOLDER / case.name).read_bytes()
    try:
        content_type = sniff_head(content[:HEAD_BYTES], case.name)
    except UnsupportedType:
        assert case.outcome == "unsupported_type"
        return
    path = tmp_path / "original"
    path.write_bytes(content)
    result = await outcome(extractor, path, content_type)
    if isinstance(result, str):
        assert result == case.outcome
    else:
        assert case.outcome == ("ready" if result else "empty")
        assert case.text in "".join(draft.content for draft in result[:1])


async def test_the_corpus_is_what_its_script_writes() -> None:
    files = {path.name: path.read_bytes() for path in FOLDER.iterdir()}
    assert files == {case.name: case.content for case in cases()}


@pytest.mark.parametrize("kids", [b"4 0 R 3 0 R", b"2 0 R 3 0 R", b"3 0 R 2 0 R 4 0 R"])
async def test_a_pdf_whose_pages_go_round_in_circles_is_read_once(
    extractor: ChildExtractor, kids: bytes, tmp_path: Path
) -> None:
    (tmp_path / "a.pdf").write_bytes(looping_pdf(kids, b"4 0 R"))
    found = await outcome(extractor, tmp_path / "a.pdf", ContentType.PDF)
    assert [draft.content for draft in found if not isinstance(draft, str)] == ["Above"]


@pytest.mark.parametrize("seed", range(2))
async def test_random_bytes_that_call_themselves_pdf_are_corrupt(
    extractor: ChildExtractor, seed: int, tmp_path: Path
) -> None:
    noise = random.Random(seed).randbytes(200_000)  # noqa: S311 - noise
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7\n" + noise + b"\n%%EOF\n")
    assert await outcome(extractor, tmp_path / "a.pdf", ContentType.PDF) == "corrupt_file"


async def test_a_pdf_that_is_cut_or_damaged_ends_in_a_code_or_chunks(
    extractor: ChildExtractor, tmp_path: Path
) -> None:
    pdf = FPDF()
    for page in range(3):
        pdf.add_page()
        pdf.set_font("helvetica", size=11)
        pdf.multi_cell(0, 6, f"This is page {page}. " + "Rows are kept for seven years. " * 20)
    good = bytes(pdf.output())
    path = tmp_path / "a.pdf"
    for share in (0.1, 0.5, 0.9, 0.99):
        path.write_bytes(good[: int(len(good) * share)])
        assert await outcome(extractor, path, ContentType.PDF) == "corrupt_file"
    dice = random.Random(1)  # noqa: S311 - noise
    for _ in range(10):
        bad = bytearray(good)
        for _ in range(20):
            bad[dice.randrange(len(bad))] = dice.randrange(256)
        path.write_bytes(bad)
        result = await outcome(extractor, path, ContentType.PDF)
        assert not isinstance(result, str) or result in {"corrupt_file", "password_required"}


async def test_a_pdf_of_many_pages_is_read_to_its_end(extractor: ChildExtractor, tmp_path: Path) -> None:
    """A scaled-down one: 1,600 full pages take a minute."""
    (tmp_path / "a.pdf").write_bytes(long_pdf(200))
    found = await outcome(extractor, tmp_path / "a.pdf", ContentType.PDF)
    text = "".join(draft.content for draft in found if not isinstance(draft, str))
    places = [text.index(f"This is sheet {page} of many.") for page in range(200)]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("text", "content_type"),
    [
        ("<div>" * 10_000 + "deep" + "</div>" * 10_000, ContentType.HTML),
        ("<p>" + "<span>" * 10_000 + "deep", ContentType.HTML),
        ("<ul><li>x" * 3000, ContentType.HTML),
        ("<table><tr><td>x" * 1000, ContentType.HTML),
        ("> " * 10_000 + "deep", ContentType.MARKDOWN),
    ],
)
async def test_a_page_too_deep_for_its_parser_is_refused_and_not_read_in_part(
    extractor: ChildExtractor, text: str, content_type: ContentType, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text(text)
    assert await outcome(extractor, tmp_path / "a", content_type) == "corrupt_file"


async def test_a_page_of_usual_depth_is_read(extractor: ChildExtractor, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("<div>" * 200 + "deep" + "</div>" * 200)
    found = await outcome(extractor, tmp_path / "a", ContentType.HTML)
    assert [draft.content for draft in found if not isinstance(draft, str)] == ["deep"]


@pytest.mark.parametrize("text", ["x" * 500_000, "word\n" * 10_000, "Rows are kept, " * 20_000])
async def test_a_large_text_without_sentences_is_read_whole(
    extractor: ChildExtractor, text: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text(text)
    result = await outcome(extractor, tmp_path / "a.txt", ContentType.TEXT)
    assert not isinstance(result, str)
    assert result[0].char_start == 0
    assert all(later.char_start <= earlier.char_end + 2 for earlier, later in pairwise(result))
    assert sum(len(draft.content) for draft in result) >= len(text.strip())


@pytest.mark.parametrize("content_type", [ContentType.CSV, ContentType.HTML])
async def test_a_table_without_spaces_is_cut_too(
    extractor: ChildExtractor, content_type: ContentType, tmp_path: Path
) -> None:
    rows = [[f"{row * 7 + column}x" * 300 for column in range(20)] for row in range(20)]
    if content_type is ContentType.CSV:
        text = "\n".join(",".join(row) for row in rows)
    else:
        cells = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
        text = "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"
    (tmp_path / "a").write_text(text)
    result = await outcome(extractor, tmp_path / "a", content_type)
    assert not isinstance(result, str)
    joined = "".join(draft.content for draft in result)
    assert all(cell in joined for row in rows for cell in row)


@pytest.mark.parametrize(
    "text",
    ["🙂🙃👩\u200d👩\u200d👧\u200d👦🏳️\u200d🌈" * 5000, "\u0301\u0302\u0489" * 20_000, "a" + "\u0301" * 50_000],
    ids=["emoji", "combining marks", "one letter with 50,000 accents"],
)
async def test_a_text_without_words_is_read_within_the_limits(
    extractor: ChildExtractor, text: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text(text)
    result = await outcome(extractor, tmp_path / "a.txt", ContentType.TEXT)
    assert result
    assert not isinstance(result, str)


async def test_a_text_of_nothing_but_marks_of_direction_is_empty(
    extractor: ChildExtractor, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("\u202e\u200f\u202b" * 5000)
    assert await outcome(extractor, tmp_path / "a.txt", ContentType.TEXT) == []
