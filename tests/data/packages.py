"""The smallest archives of each format, written by hand so that they are the same to the byte each time."""

import io
import stat
import struct
import zlib
from zipfile import ZipFile, ZipInfo

SENTENCE = "Rows are kept for seven years."


def archive(entries: dict[str, bytes], *, links: bool = False) -> bytes:
    buffer = io.BytesIO()
    with ZipFile(buffer, "w") as file:
        for name, content in entries.items():
            info = ZipInfo(name)
            info.create_system = 3
            is_link = links and content.startswith(b"/")
            info.external_attr = ((stat.S_IFLNK if is_link else stat.S_IFREG) | 0o644) << 16
            file.writestr(info, content)
    return buffer.getvalue()


def overlapping_bomb() -> bytes:
    """A hundred entries that unpack to a mebibyte each and share one kilobyte."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    zeros = bytes(2**20)
    data = packer.compress(zeros) + packer.flush()
    sizes = (zlib.crc32(zeros), len(data), len(zeros))
    names = [f"word/{number:03}.xml".encode() for number in range(100)]
    local = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, 0, 8, 0, 33, *sizes, len(names[0]), 0) + names[0] + data
    directory = b"".join(
        struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, 20, 0, 8, 0, 33, *sizes, len(name), 0, 0, 0, 0, 0, 0)
        + name
        for name in names
    )
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, len(names), len(names), len(directory), len(local), 0)
    return local + directory + end


def relations(**targets: str) -> bytes:
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    entries = (
        f'<Relationship Id="rId{n}" Type="{office}/{kind}" Target="{target}"/>'
        for n, (kind, target) in enumerate(targets.items(), 1)
    )
    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    return f'<Relationships xmlns="{package}">{"".join(entries)}</Relationships>'.encode()


def content_types(**kinds: str) -> bytes:
    parts = "".join(f'<Override PartName="/{name}" ContentType="{kind}"/>' for name, kind in kinds.items())
    return (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        '<Default Extension="png" ContentType="image/png"/>'
        f'<Default Extension="bin" ContentType="application/vnd.ms-office.vbaProject"/>{parts}</Types>'
    ).encode()


WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"


def word(
    text: str = SENTENCE,
    prolog: str = "",
    *,
    encoding: str = "utf-8",
    kind: str = WORD,
    extra: dict[str, bytes] | None = None,
    links: bool = False,
) -> bytes:
    document = (
        f'{prolog}<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
        f"<w:body><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:body></w:document>"
    )
    parts = {
        "[Content_Types].xml": content_types(**{"word/document.xml": kind}),
        "_rels/.rels": relations(officeDocument="word/document.xml"),
        "word/document.xml": document.encode(encoding),
    }
    return archive(parts | (extra or {}), links=links)


def workbook(text: str = SENTENCE, prolog: str = "") -> bytes:
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    office = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
    kinds = {
        "xl/workbook.xml": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml",
        "xl/worksheets/sheet1.xml": "application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml",
    }
    cell = f'<row r="1"><c r="A1" t="inlineStr"><is><t>{text}</t></is></c></row>' if text else ""
    return archive(
        {
            "[Content_Types].xml": content_types(**kinds),
            "_rels/.rels": relations(officeDocument="xl/workbook.xml"),
            "xl/workbook.xml": (
                f'<workbook {main} {office}><sheets><sheet name="S" sheetId="1" r:id="rId1"/></sheets></workbook>'
            ).encode(),
            "xl/_rels/workbook.xml.rels": relations(worksheet="worksheets/sheet1.xml"),
            "xl/worksheets/sheet1.xml": (
                f"{prolog}<worksheet {main}><sheetData>{cell}</sheetData></worksheet>".encode()
            ),
        }
    )


def open_document(text: str = SENTENCE, prolog: str = "", *, manifest: str = "") -> bytes:
    names = "urn:oasis:names:tc:opendocument:xmlns"
    content = (
        f'{prolog}<office:document-content xmlns:office="{names}:office:1.0" xmlns:text="{names}:text:1.0">'
        f"<office:body><office:text><text:p>{text}</text:p></office:text></office:body></office:document-content>"
    )
    styles = (
        f'<office:document-styles xmlns:office="{names}:office:1.0" xmlns:style="{names}:style:1.0" '
        f'xmlns:text="{names}:text:1.0" xmlns:fo="{names}:xsl-fo-compatible:1.0">'
        "<office:styles/><office:automatic-styles/><office:master-styles/></office:document-styles>"
    )
    return archive(
        {
            "mimetype": b"application/vnd.oasis.opendocument.text",
            "content.xml": content.encode(),
            "styles.xml": styles.encode(),
            "META-INF/manifest.xml": (
                f'<manifest:manifest xmlns:manifest="{names}:manifest:1.0">{manifest}</manifest:manifest>'.encode()
            ),
        }
    )


def book(text: str = SENTENCE, prolog: str = "") -> bytes:
    container = (
        '<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="a.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="i">'
        '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="i">i</dc:identifier></metadata>'
        '<manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="a"/></spine></package>'
    )
    page = f'{prolog}<html xmlns="http://www.w3.org/1999/xhtml"><body><p>{text}</p></body></html>'
    return archive(
        {
            "mimetype": b"application/epub+zip",
            "META-INF/container.xml": container.encode(),
            "a.opf": package.encode(),
            "a.xhtml": page.encode(),
        }
    )
