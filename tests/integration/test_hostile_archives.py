"""Archives made to hurt whoever opens them, and the limits of pandoc."""

import io
from collections.abc import Callable
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pytest

from kbmesh.errors import KbmeshError
from services.ingest.adapters import archive, pandoc
from services.ingest.adapters.unstructured import extract
from services.ingest.domain.content_type import ContentType
from tests.support.files import by_pandoc, repacked, slides, word, workbook, zipped

LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
BOMB = f'<!DOCTYPE bomb [<!ENTITY l0 "laugh">{LAUGHS}]>'
# The part that holds text, and a place in it where text stands.
TEXT_OF = {
    ContentType.DOCX: ("word/document.xml", b"Rows are kept."),
    ContentType.PPTX: ("ppt/slides/slide1.xml", b"Retention"),
    ContentType.XLSX: ("xl/worksheets/sheet1.xml", b"orders"),
    ContentType.ODT: ("content.xml", b"Dictionary"),
    ContentType.EPUB: ("EPUB/text/ch001.xhtml", b"One row an order."),
}


@pytest.fixture
def make(tmp_path: Path) -> Callable[[ContentType], Path]:
    def write(content_type: ContentType) -> Path:
        path = tmp_path / "good"
        match content_type:
            case ContentType.DOCX:
                return word(path)
            case ContentType.PPTX:
                return slides(path)
            case ContentType.XLSX:
                return workbook(path, {"Sheet": [["orders"]]})
            case ContentType.ODT:
                return by_pandoc(path, "odt")
        return by_pandoc(path, "epub3", "Title")

    return write


def code_of(path: Path, content_type: ContentType = ContentType.DOCX) -> str:
    with pytest.raises(KbmeshError) as caught:
        extract(path, content_type)
    return caught.value.code


def with_entities(good: Path, bad: Path, content_type: ContentType, encoding: str = "utf-8") -> Path:
    name, place = TEXT_OF[content_type]
    text = ZipFile(good).read(name)
    assert place in text
    root = text.index(b"<", text.index(b"?>") if text.startswith(b"<?xml") else 0)
    document = BOMB.encode() + text[root:].replace(b"<!DOCTYPE html>", b"").replace(place, b"&l9;", 1)
    return repacked(good, bad, {name: document.decode().encode(encoding)})


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("content_type", TEXT_OF)
def test_a_document_that_declares_entities_is_refused(
    content_type: ContentType, encoding: str, make: Callable[[ContentType], Path], tmp_path: Path
) -> None:
    bad = with_entities(make(content_type), tmp_path / "bad", content_type, encoding)
    assert code_of(bad, content_type) == "archive_bomb"


@pytest.mark.parametrize("content_type", TEXT_OF)
def test_the_parsers_do_not_expand_entities_either(
    content_type: ContentType,
    make: Callable[[ContentType], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archive, "_ENTITY_MARKS", (b"nowhere to be found",))
    bad = with_entities(make(content_type), tmp_path / "bad", content_type)
    try:
        text = extract(bad, content_type).text
    except KbmeshError as error:
        assert error.code == "corrupt_file"  # noqa: PT017 - either end is good
    else:
        assert text.count("laugh") < 10


def test_an_entity_bomb_in_a_page_is_not_expanded(tmp_path: Path) -> None:
    (tmp_path / "a.xhtml").write_text(f'<?xml version="1.0"?>\n{BOMB}\n<html><body><p>&l9;</p></body></html>')
    assert len(extract(tmp_path / "a.xhtml", ContentType.HTML).text) < 10_000


def test_entities_are_found_wherever_they_stand(tmp_path: Path) -> None:
    for name in ("word/document.xml", "customXml/item1.xml", "word/_rels/document.xml.rels"):
        padding = b"<!--" + b"x" * (2**20 - 9) + b"-->"
        bad = repacked(word(tmp_path / "good"), tmp_path / "bad", {name: padding + BOMB.encode() + b"<a/>"})
        assert code_of(bad) == "archive_bomb"


def test_a_zip_bomb_is_refused_unopened(tmp_path: Path) -> None:
    good = word(tmp_path / "good.docx")
    bomb = repacked(good, tmp_path / "bomb.docx", {"word/media/image1.png": bytes(80 * 2**20)})
    assert bomb.stat().st_size < 2**20
    assert code_of(bomb) == "archive_bomb"
    # Forty files of 32 MiB are over the limit together, whatever their ratio.
    sized = io.BytesIO(good.read_bytes())
    with ZipFile(sized, "a", ZIP_DEFLATED) as file:
        for number in range(40):
            with file.open(f"word/media/{number}.bin", "w") as entry:
                for _ in range(32):
                    entry.write(bytes(2**20))
    (tmp_path / "sum.docx").write_bytes(sized.getvalue())
    assert code_of(tmp_path / "sum.docx") == "archive_bomb"


def test_an_archive_that_lies_about_its_sizes_unpacks_to_no_more(tmp_path: Path) -> None:
    data = repacked(word(tmp_path / "good"), tmp_path / "bad", {"word/document.xml": bytes(2**20)}).read_bytes()
    (tmp_path / "bad").write_bytes(data.replace((2**20).to_bytes(4, "little"), (500).to_bytes(4, "little")))
    assert code_of(tmp_path / "bad") == "corrupt_file"


def test_a_word_file_with_a_hundred_thousand_entries_is_refused(tmp_path: Path) -> None:
    path = word(tmp_path / "many.docx")
    with ZipFile(path, "a") as file:
        for number in range(100_000):
            file.writestr(ZipInfo(f"word/media/{number}.png"), b"")
    assert code_of(path) == "archive_bomb"
    # The same, with an end record that claims a few.
    data = bytearray(path.read_bytes())
    end = data.rfind(b"PK\x05\x06")
    data[end + 8 : end + 12] = b"\x05\x00\x05\x00"
    path.write_bytes(data)
    assert code_of(path) in {"archive_bomb", "corrupt_file"}


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (("word/document.xml", "../../etc/passwd"), "corrupt_file"),
        (("word/document.xml", "/etc/passwd"), "corrupt_file"),
        (("word/document.xml", "C:\\windows\\x"), "corrupt_file"),
        (("word/document.xml", "word\\..\\..\\x"), "corrupt_file"),
        (("word/document.xml",), "corrupt_file"),
        (("xl/workbook.xml",), "corrupt_file"),
        (("a.txt", "b..txt"), "unsupported_type"),
        (("mimetype", "content.xml"), "unsupported_type"),
    ],
)
def test_an_archive_with_strange_entries_is_refused(names: tuple[str, ...], code: str, tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(zipped(*names))
    assert code_of(tmp_path / "a.docx") == code


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    path = word(tmp_path / "a.docx")
    with ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("word/document.xml", "<other/>")
    assert code_of(path) == "corrupt_file"


@pytest.mark.parametrize("content_type", TEXT_OF)
@pytest.mark.parametrize("damage", [lambda d: d[: len(d) // 2], lambda d: b"PK\x03\x04 cut short", lambda d: b""])
def test_a_cut_archive_is_corrupt(
    content_type: ContentType,
    damage: Callable[[bytes], bytes],
    make: Callable[[ContentType], Path],
    tmp_path: Path,
) -> None:
    (tmp_path / "cut").write_bytes(damage(make(content_type).read_bytes()))
    assert code_of(tmp_path / "cut", content_type) == "corrupt_file"


def test_an_archive_behind_a_password_says_so(tmp_path: Path) -> None:
    manifest = b'<manifest:manifest><manifest:encryption-data manifest:checksum="x"/></manifest:manifest>'
    odt = repacked(by_pandoc(tmp_path / "good", "odt"), tmp_path / "a.odt", {"META-INF/manifest.xml": manifest})
    assert code_of(odt, ContentType.ODT) == "password_required"
    data = bytearray(word(tmp_path / "a.docx").read_bytes())
    entry = data.find(b"PK\x01\x02")
    data[entry + 8] |= 1
    (tmp_path / "a.docx").write_bytes(data)
    assert code_of(tmp_path / "a.docx") == "password_required"


@pytest.mark.parametrize(
    ("limit", "value", "code"),
    [("_CPU_SECONDS", 1, "extraction_timeout"), ("_HEAP", "-M16M", "extraction_memory")],
)
def test_pandoc_keeps_within_its_limits(
    limit: str, value: object, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pandoc, limit, value)
    (tmp_path / "a.rtf").write_text("{\\rtf1 " + "Rows are {\\b kept} for years.\\par " * 300_000 + "}")
    assert code_of(tmp_path / "a.rtf", ContentType.RTF) == code


def test_broken_rich_text_is_corrupt_or_empty(tmp_path: Path) -> None:
    (tmp_path / "a.rtf").write_bytes(b"{\\rtf1 {{{{" + bytes(range(256)) * 4)
    assert code_of(tmp_path / "a.rtf", ContentType.RTF) == "corrupt_file"
