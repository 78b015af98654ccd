"""Scanned pages, read by tesseract where it is installed and switched on."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fpdf import FPDF
from pydantic import SecretStr, ValidationError
from pypdfium2 import PdfDocument

from kbmesh.auth import AuthMode, AuthSettings
from kbmesh.errors import KbmeshError, Misconfigured
from kbmesh.messaging import KafkaSettings
from kbmesh.postgres import PostgresSettings
from services.ingest.adapters import ocr
from services.ingest.adapters.unstructured import extract
from services.ingest.bootstrap import bootstrap
from services.ingest.domain.content_type import ContentType
from services.ingest.settings import ExtractionSettings, IngestSettings, StoreSettings
from tests.support.files import drawn, needs_tesseract, scan


def read(path: Path, languages: str | None = "eng") -> list[tuple[int | None, str]]:
    document = extract(path, ContentType.PDF, languages)
    return [(block.page, document.text[block.start : block.end]) for block in document.blocks]


@needs_tesseract
def test_a_scan_is_read_page_by_page_if_that_is_switched_on(tmp_path: Path) -> None:
    path = scan(tmp_path / "a.pdf", "Rows are kept for seven years.", "", "Owners check each of them.")
    assert read(path) == [(1, "Rows are kept for seven years."), (3, "Owners check each of them.")]
    assert read(path, None) == []


@needs_tesseract
def test_scanned_pages_stand_among_those_with_text(tmp_path: Path) -> None:
    pdf = FPDF()
    for number, image in enumerate([None, drawn("The signed page is a scan."), None, None], 1):
        pdf.add_page()
        pdf.set_font("helvetica", size=11)
        # A scanner's stamp is no reason to leave the rest of its page unread.
        pdf.text(10, 10, f"Page {number}")
        if image is not None:
            pdf.image(image, x=10, y=100, w=120)
        elif number < 4:
            pdf.text(10, 100, f"The typed text of page {number} is kept.")
    pdf.output(str(tmp_path / "a.pdf"))
    found = read(tmp_path / "a.pdf")
    assert [page for page, _ in found] == sorted(page or 0 for page, _ in found)
    sentences = [(page, text) for page, text in found if text.startswith("The ")]
    assert sentences == [
        (1, "The typed text of page 1 is kept."),
        (2, "The signed page is a scan."),
        (3, "The typed text of page 3 is kept."),
    ]


@needs_tesseract
def test_a_page_as_large_as_a_house_is_drawn_within_bounds_and_read(tmp_path: Path) -> None:
    path = scan(tmp_path / "a.pdf", "Rows are kept for seven years.", resolution=1)
    assert read(path) == [(1, "Rows are kept for seven years.")]
    with PdfDocument(path) as document:
        for width, height in [(2e9, 2e9), (1, 2e9), (2e9, 1e-9), (0, 5), (3, 3)]:
            document[0].set_mediabox(0, 0, width, height)
            assert len(ocr._rendered(document[0])) < ocr._MAX_PIXELS + 100_000


@needs_tesseract
def test_a_page_that_takes_too_long_fails_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "_TIMEOUT_S", 0.01)
    with pytest.raises(KbmeshError) as caught:
        read(scan(tmp_path / "a.pdf", "Rows are kept for seven years."))
    assert caught.value.code == "extraction_timeout"


def test_tesseract_does_not_outlive_a_killed_reader(tmp_path: Path) -> None:
    pid, half_written = tmp_path / "pid", tmp_path / "half-written"
    path = fake_tesseract(tmp_path, f"echo $$ > {half_written} && mv {half_written} {pid}; exec sleep 60")
    code = "from services.ingest.adapters import ocr; ocr._TIMEOUT_S = 1; ocr._recognized(b'', 'eng')"
    reader = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PATH": path})
    deadline = time.monotonic() + 30
    while not pid.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    reader.kill()
    reader.wait()
    process = int(pid.read_text())
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(process, 0)
            time.sleep(0.02)


def test_a_tesseract_that_fails_is_not_mistaken_for_an_empty_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", fake_tesseract(tmp_path, "exit 1"))
    with pytest.raises(KbmeshError) as caught:
        read(scan(tmp_path / "a.pdf", "Rows are kept."))
    assert caught.value.code == "extraction_crashed"
    with pytest.raises(Misconfigured, match="list-langs"):
        ocr.check_ocr("eng")


def fake_tesseract(folder: Path, script: str) -> str:
    """The PATH to find it on."""
    path = folder / "tesseract"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@needs_tesseract
def test_a_language_that_is_not_installed_is_named_with_its_package() -> None:
    ocr.check_ocr("eng")
    with pytest.raises(Misconfigured, match=r"chi_none, xx \(Debian: tesseract-ocr-chi-none, tesseract-ocr-xx\)"):
        ocr.check_ocr("eng+xx+chi_none")


@pytest.mark.parametrize("languages", ["", "-l", "eng+", "eng deu", "../eng"])
def test_languages_are_names_joined_by_plus(languages: str) -> None:
    with pytest.raises(ValidationError):
        ExtractionSettings(ocr_languages=languages)


async def test_the_service_does_not_start_with_ocr_and_without_tesseract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = IngestSettings(
        auth=AuthSettings(mode=AuthMode.OFF),
        postgres=PostgresSettings(dsn=SecretStr("postgresql://nowhere")),
        kafka=KafkaSettings(bootstrap_servers="nowhere:1"),
        store=StoreSettings(directory=tmp_path),
        extraction=ExtractionSettings(ocr=True),
    )
    with pytest.raises(Misconfigured, match="Debian: tesseract-ocr") as caught:
        async with bootstrap(settings):
            raise AssertionError("it started")
    assert caught.value.code == "ocr_missing"
