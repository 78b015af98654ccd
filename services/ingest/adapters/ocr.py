"""Scanned pages of a PDF to text, by tesseract in a process of its own, where it is installed and switched on."""

import io
import os
import shutil
import subprocess
from collections.abc import Container, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kbmesh.errors import Misconfigured
from services.ingest.adapters.limits import limited, was_ended
from services.ingest.domain.extraction import ExtractionFailed

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

_DPI = 300
_POINTS_PER_INCH = 72
# Of a rendered page, at a byte each: A3 at full resolution. What is larger gets a lower one.
_MAX_PIXELS = 20_000_000
# Leptonica, which reads images for tesseract, takes none with a longer side than 32,767.
_MAX_SIDE = 30_000
_TIMEOUT_S = 60
_CPU_SECONDS = 60


def check_ocr(languages: str) -> None:
    """Raises Misconfigured (ocr_missing) unless tesseract is here and knows the languages."""
    if shutil.which("tesseract") is None or shutil.which("timeout") is None:
        raise _missing("tesseract (Debian: tesseract-ocr) and timeout (coreutils)")
    try:
        done = subprocess.run(
            ["tesseract", "--list-langs"],  # noqa: S607 - whichever the operator has on the PATH
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _missing("a tesseract that runs: `tesseract --list-langs` fails") from error
    if missing := sorted(set(languages.split("+")) - set(done.stdout.split())):
        packages = ", ".join(f"tesseract-ocr-{language.replace('_', '-')}" for language in missing)
        raise _missing(f"tesseract's data for {', '.join(missing)} (Debian: {packages})")


def _missing(what: str) -> Misconfigured:
    return Misconfigured(f"EXTRACTION__OCR needs {what}: install it, or switch OCR off", code="ocr_missing")


def read_pages(path: Path, languages: str, *, skip: Container[int | None]) -> Iterator[tuple[int, str]]:
    """Number and text of each page that is not to be skipped and on which something is drawn. Pages that cannot
    be loaded are passed over, as when their text is read.

    Raises ExtractionFailed (extraction_timeout, extraction_crashed) and what pypdfium2 raises for damage.
    """
    # Imported here because only the child may pay for it.
    from pypdfium2 import PdfDocument, PdfiumError

    with PdfDocument(path) as document:
        for number in range(1, len(document) + 1):
            if number in skip:
                continue
            try:
                page = document[number - 1]
            except PdfiumError:
                continue
            if next(page.get_objects(max_depth=1), None):
                yield number, _recognized(_rendered(page), languages)
            page.close()


def _rendered(page: "PdfPage") -> bytes:
    """A grey image of the page in portable graymap format."""
    width, height = page.get_size()
    scale = min(_DPI / _POINTS_PER_INCH, (_MAX_PIXELS / (width * height)) ** 0.5, _MAX_SIDE / max(width, height))
    bitmap = page.render(scale=scale, grayscale=True)
    image = io.BytesIO()
    bitmap.to_pil().save(image, "PPM")
    bitmap.close()
    return image.getvalue()


def _recognized(image: bytes, languages: str) -> str:
    command = ["tesseract", "stdin", "stdout", "-l", languages, "--dpi", str(_DPI)]
    done = subprocess.run(  # noqa: S603 - no word of it comes from outside
        limited(command, cpu_s=_CPU_SECONDS, timeout_s=_TIMEOUT_S),
        check=False,
        input=image,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # More threads only get into each other's way.
        env={**os.environ, "OMP_THREAD_LIMIT": "1"},
    )
    if was_ended(done.returncode):
        raise ExtractionFailed(f"OCR of a page gave up after {_TIMEOUT_S} s", code="extraction_timeout")
    if done.returncode:
        raise ExtractionFailed("OCR of a page failed (tesseract)", code="extraction_crashed")
    return done.stdout.decode("utf-8", "replace")
