"""Old Office files, read where LibreOffice is installed and refused with a reason where not."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kbmesh.errors import KbmeshError
from services.ingest.adapters import libreoffice
from services.ingest.adapters.unstructured import extract
from services.ingest.domain.content_type import ContentType
from tests.support.files import by_pandoc, compound_file, slides, workbook

needs_libreoffice = pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")


@pytest.fixture
def old(tmp_path: Path) -> Callable[[str], Path]:
    def make(suffix: str) -> Path:
        path = tmp_path / "new"
        match suffix:
            case "doc":
                by_pandoc(path, "odt")
            case "xls":
                workbook(path, {"Orders": [["id", "total"], [1, 2.5]]})
            case _:
                slides(path)
        profile = f"-env:UserInstallation=file://{tmp_path}/profile"
        command = ["soffice", "--headless", profile, "--convert-to", suffix, "--outdir", str(tmp_path), str(path)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        return tmp_path / f"new.{suffix}"

    return make


def code_of(path: Path) -> str:
    with pytest.raises(KbmeshError) as caught:
        extract(path, ContentType.DOC)
    return caught.value.code


@needs_libreoffice
@pytest.mark.parametrize(
    ("suffix", "texts"),
    [
        ("doc", ["Dictionary", "One row an order.", "Column | Meaning\nid | number of the order", "- one\n- two"]),
        ("xls", ["Orders\n\nid | total\n1 | 2.5"]),
        ("ppt", ["Retention", "Rows are kept for seven years.", "Table | Owner\norders | Sales North"]),
    ],
)
def test_an_old_file_is_read_as_what_it_is_whatever_was_claimed(
    suffix: str, texts: list[str], old: Callable[[str], Path]
) -> None:
    text = extract(old(suffix), ContentType.DOC).text
    for expected in texts:
        assert expected in text


@needs_libreoffice
def test_a_hanging_libreoffice_is_ended(old: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = old("doc")
    monkeypatch.setattr(libreoffice, "_TIMEOUT_S", 0.05)
    assert code_of(path) == "extraction_timeout"


@needs_libreoffice
def test_a_broken_old_file_is_corrupt(tmp_path: Path) -> None:
    (tmp_path / "a.doc").write_bytes(compound_file("WordDocument"))
    assert code_of(tmp_path / "a.doc") == "corrupt_file"


@pytest.mark.parametrize("stream", ["WordDocument", "Workbook", "PowerPoint Document"])
def test_without_libreoffice_the_document_fails_with_the_package_to_install(
    stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "a.doc").write_bytes(compound_file(stream))
    with pytest.raises(KbmeshError, match=r"Debian: libreoffice-\w+-nogui") as caught:
        extract(tmp_path / "a.doc", ContentType.DOC)
    assert caught.value.code == "converter_missing"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (compound_file("EncryptedPackage"), "password_required"),
        (compound_file("__properties_version1.0"), "unsupported_type"),
        (compound_file("WordDocument")[:700], "corrupt_file"),
        (compound_file("WordDocument")[:8] + bytes(2000), "corrupt_file"),
    ],
)
def test_other_files_of_the_old_kind_are_refused(content: bytes, code: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    assert code_of(tmp_path / "a") == code
