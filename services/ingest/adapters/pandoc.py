"""Rich text, OpenDocument text and e-books to HTML, by pandoc in a process of its own."""

import subprocess
from pathlib import Path

import pypandoc

from services.ingest.domain.extraction import ExtractionFailed

_CPU_SECONDS = 60
_TIMEOUT_S = 100
_HEAP = "-M1G"
_HEAP_EXHAUSTED = 251
# The limit on processor time outlives this process: should it be killed, pandoc ends by itself.
_LIMITED = 'ulimit -t "$1" && shift && exec "$@"'


def to_html(path: Path, source_format: str) -> str:
    """A whole page. Raises ExtractionFailed (corrupt_file, extraction_timeout, extraction_memory)."""
    pandoc = [pypandoc.get_pandoc_path(), "+RTS", _HEAP, "-RTS", "--sandbox", "-f", source_format, "-t", "html"]
    # A whole page has the title of a book; its date of printing would only stand in the way.
    options = ["-s", "-M", "document-css=false", "-M", "date=", "--", str(path)]
    try:
        done = subprocess.run(  # noqa: S603 - no word of it comes from outside
            ["/bin/sh", "-c", _LIMITED, "sh", str(_CPU_SECONDS), *pandoc, *options],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise ExtractionFailed(f"gave up after {_TIMEOUT_S} s", code="extraction_timeout") from error
    if done.returncode < 0:
        raise ExtractionFailed(f"gave up after {_CPU_SECONDS} s of processor time", code="extraction_timeout")
    if done.returncode == _HEAP_EXHAUSTED:
        raise ExtractionFailed("needs more than 1 GiB of memory", code="extraction_memory")
    if done.returncode:
        raise ExtractionFailed("the file is damaged or not what it claims to be (pandoc)")
    return done.stdout.decode("utf-8", "replace")
