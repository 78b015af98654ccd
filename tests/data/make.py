"""Writes the small nasty files in `hostile/` beside it, the same bytes each time: `make corpus`.

Each case says how extraction has to end: `ready`, `empty`, or the code of the refusal.
"""

import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.data.packages import SENTENCE, archive, book, open_document, overlapping_bomb, word, workbook
from tests.support.files import compound_file, looping_pdf

FOLDER = Path(__file__).parent / "hostile"
UMLAUTS = "Die Größe der Tabelle zählt."

LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
BOMB = f'<!DOCTYPE bomb [<!ENTITY l0 "laugh">{LAUGHS}]>'
XXE = '<!DOCTYPE x [<!ENTITY l9 SYSTEM "file:///etc/passwd">]>'


@dataclass(frozen=True)
class Case:
    name: str
    content: bytes
    outcome: str = "ready"
    text: str = ""
    """Must be in the first chunk of a file that is read."""


def cases() -> Iterator[Case]:
    yield from archives()
    yield from pdfs()
    yield from pages_and_mails()
    yield from tables()
    yield from texts()
    yield from liars()
    yield from empties()


def archives() -> Iterator[Case]:
    good = word()
    yield Case("plain.docx", good, text=SENTENCE)
    yield Case("plain.odt", open_document(), text=SENTENCE)
    yield Case("plain.epub", book(), text=SENTENCE)
    yield Case("bomb-overlapping.docx", overlapping_bomb(), "archive_bomb")
    yield Case("entities.docx", word("&l9;", BOMB), "archive_bomb")
    yield Case("entities-external.docx", word("&l9;", XXE), "archive_bomb")
    yield Case("entities-utf-16.docx", word("&l9;", BOMB, encoding="utf-16"), "archive_bomb")
    yield Case("entities.xlsx", workbook("&l9;", BOMB), "archive_bomb")
    yield Case("entities.odt", open_document("&l9;", BOMB), "archive_bomb")
    yield Case("entities.epub", book("&l9;", BOMB), "archive_bomb")
    end = good.rfind(b"PK\5\6")
    many = good[: end + 8] + struct.pack("<HH", 60_000, 60_000) + good[end + 12 :]
    yield Case("claims-60000-entries.docx", many, "archive_bomb")
    yield Case("traversal.docx", word(extra={"../../../../tmp/kbmesh-evil": b"x"}), "corrupt_file")
    yield Case("absolute-path.docx", word(extra={"/tmp/kbmesh-evil": b"x"}), "corrupt_file")  # noqa: S108
    yield Case("symlink.docx", word(extra={"word/media/a.png": b"/etc/passwd"}, links=True), text=SENTENCE)
    yield Case("symlink-as-text.docx", archive({"word/document.xml": b"/etc/passwd"}, links=True), "corrupt_file")
    yield Case("cut.docx", good[: len(good) // 2], "corrupt_file")
    central = good.find(b"PK\1\2")
    yield Case("password.docx", good[: central + 8] + b"\1" + good[central + 9 :], "password_required")
    yield Case("password-office.docx", compound_file("EncryptedPackage"), "password_required")
    yield Case("not-a-document.msg", compound_file("__properties_version1.0"), "unsupported_type")
    macros = {"word/vbaProject.bin": compound_file("VBA")}
    locked = open_document(manifest="<manifest:encryption-data/>")
    yield Case("password.odt", locked, "password_required")
    macro_kind = "application/vnd.ms-word.document.macroEnabled.main+xml"
    yield Case("macros.docm", word(kind=macro_kind, extra=macros), "unsupported_type")
    yield Case("archive.zip", archive({"a.txt": b"text", "b.docx": good}), "unsupported_type")
    yield Case("deep.docx", word("x</w:t></w:r>" + "<w:ins><w:r>" * 2000 + "<w:t>y</w:t>"), "corrupt_file")


def pdf(content: bytes, *, stream: str = "", trailer: str = "", page: str = "") -> bytes:
    return (
        b"%PDF-1.4\n1 0 obj <</Type /Catalog /Pages 2 0 R>> endobj\n"
        b"2 0 obj <</Type /Pages /Kids [3 0 R] /Count 1>> endobj\n"
        b"3 0 obj <</Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] /Contents 4 0 R "
        b"/Resources <</Font <</F 5 0 R>>>> " + page.encode() + b">> endobj\n"
        b"4 0 obj <<" + (stream or f"/Length {len(content)}").encode() + b">> stream\n" + content + b"\nendstream "
        b"endobj\n5 0 obj <</Type /Font /Subtype /Type1 /BaseFont /Helvetica>> endobj\n"
        b"trailer <</Root 1 0 R " + trailer.encode() + b">>\nstartxref\n0\n%%EOF\n"
    )


def shown(text: str) -> bytes:
    return f"BT /F 9 Tf 9 80 Td ({text}) Tj ET".encode()


def pdfs() -> Iterator[Case]:
    good = pdf(shown(SENTENCE))
    yield Case("plain.pdf", good, text=SENTENCE)
    yield Case("cut.pdf", good[:-40], "corrupt_file")
    yield Case("loop.pdf", looping_pdf(b"2 0 R 3 0 R", b"4 0 R"), text="Above")
    noise = random.Random(1).randbytes(4000)  # noqa: S311 - noise
    yield Case("noise.pdf", b"%PDF-1.7\n" + noise + b"\n%%EOF\n", "corrupt_file")
    key = "<" + "00" * 32 + ">"
    locked = f"/ID [<00> <00>] /Encrypt <</Filter /Standard /V 1 /R 2 /O {key} /U {key} /P -1>>"
    yield Case("password.pdf", pdf(shown(SENTENCE), trailer=locked), "password_required")
    yield Case("nul.pdf", pdf(shown("Rows\\000 are\\000 kept.")), text="Rows are kept.")
    yield Case("length-lies.pdf", pdf(shown(SENTENCE), stream="/Length 2000000000"))
    yield Case("length-is-itself.pdf", pdf(shown(SENTENCE), stream="/Length 4 0 R"))
    yield Case("annotations-loop.pdf", pdf(shown(SENTENCE), page="/Annots 3 0 R"), text=SENTENCE)
    form = "/Resources <</Font <</F 5 0 R>> /XObject <</X 4 0 R>>>>"
    itself = shown(SENTENCE) + b" /X Do"
    header = f"/Type /XObject /Subtype /Form /BBox [0 0 300 300] {form} /Length {len(itself)}"
    yield Case("draws-itself.pdf", pdf(itself, stream=header, page=form))
    spaces = zlib.compress(zlib.compress(b" " * 4_000_000 + shown(SENTENCE), 9), 9)
    twice = f"/Length {len(spaces)} /Filter [/FlateDecode /FlateDecode]"
    yield Case("packed-twice.pdf", pdf(spaces, stream=twice))


def pages_and_mails() -> Iterator[Case]:
    yield Case("deep.html", b"<html>" + b"<b>" * 3000 + SENTENCE.encode(), "corrupt_file")
    yield Case("script-only.html", b"<html><script>let rows = 'kept'</script><style>p {}</style></html>", "empty")
    yield Case("entities.html", f"<html>{BOMB}<body><p>{SENTENCE}&l9;</p></body></html>".encode())
    yield Case("lone-surrogate.html", f"<html><body><p>{SENTENCE}&#xD800;&#0;</p></body></html>".encode())
    yield Case("brackets.md", b"[" * 3000 + b"\n")
    yield Case("deep.md", b"> " * 3000 + SENTENCE.encode(), "corrupt_file")
    yield Case("plain.rtf", b"{\\rtf1 {\\b " + SENTENCE.encode() + b"}\\par}", text=SENTENCE)
    yield Case("deep.rtf", b"{\\rtf1 " + b"{" * 3000 + SENTENCE.encode() + b"}" * 3001)
    yield Case("never-closed.rtf", b"{\\rtf1 {{{{\\b", "corrupt_file")
    yield Case("claims-binary.rtf", b"{\\rtf1 \\bin2000000000 " + SENTENCE.encode() + b"}", "corrupt_file")
    head = "From: a@example.org\r\nMessage-ID: <1@example.org>\r\nMIME-Version: 1.0\r\n"
    nested = "".join(f"{head}Subject: {n}\r\nContent-Type: message/rfc822\r\n\r\n" for n in range(300))
    yield Case("mail-in-mail.eml", (nested + head + "\r\n" + SENTENCE).encode())
    same = f'{head}Content-Type: multipart/mixed; boundary="b"\r\n\r\n'
    inner = '--b\r\nContent-Type: multipart/mixed; boundary="b"\r\n\r\n'
    yield Case("boundary-loop.eml", (same + inner * 300 + f"--b\r\n\r\n{SENTENCE}\r\n--b--\r\n").encode())
    yield Case("boundary-never.eml", (same + SENTENCE).encode())
    quoted = f"{head}Content-Transfer-Encoding: quoted-printable\r\n\r\n{SENTENCE}=\r\n=ZZ=0=00="
    yield Case("quoted-printable-broken.eml", quoted.encode())
    broken = f"{head}Content-Transfer-Encoding: base64\r\n\r\nUm93cyBhcmUga2VwdA=====x"
    yield Case("base64-broken.eml", broken.encode())
    yield Case("charset-unknown.eml", f'{head}Content-Type: text/plain; charset="x\0y"\r\n\r\n{SENTENCE}'.encode())
    attached = f'{same}--b\r\nContent-Disposition: attachment; filename="../../a.exe"\r\n\r\nMZ\r\n--b--\r\n'
    yield Case("attachment-only.eml", attached.encode(), text="../../a.exe")


def tables() -> Iterator[Case]:
    yield Case("10000-columns.csv", b"a," * 10_000 + b"\n" + b"1," * 10_000 + b"\n")
    yield Case("one-cell.csv", b"x" * 12_000 + b",b\n")
    yield Case("without-spaces.csv", b"\n".join(b",".join([b"%dx" % n * 90] * 8) for n in range(8)))
    yield Case("never-closed.csv", b'a,"b\n1,2\n3,4\n', text="a | b 1,2 3,4")
    yield Case("nul.csv", b"a\x00,b\n1,\x002\n" + b"more,rows\n" * 5, text="a | b\n1 | 2")
    yield Case("plain.xlsx", workbook(), text=SENTENCE)


def texts() -> Iterator[Case]:
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-16-le", "latin-1"):
        yield Case(f"{encoding}.txt", UMLAUTS.encode(encoding), text=UMLAUTS)
    yield Case("utf-16-be-marked.txt", b"\xfe\xff" + UMLAUTS.encode("utf-16-be"), text=UMLAUTS)
    yield Case("cp1252.txt", "Ein „Zitat“ – 5 € …".encode("cp1252"), text="Ein „Zitat“ – 5 € …")
    yield Case("shift-jis.txt", "これは保存期間の方針です。".encode("cp932"), text="これは保存期間の方針です。")
    yield Case("utf-8-overlong.txt", SENTENCE.encode() + b"\xc0\xaf\xe0\x80\xaf", text=SENTENCE)
    yield Case("utf-8-cut.txt", SENTENCE.encode() + "é".encode()[:1], text=SENTENCE)
    yield Case("utf-8-surrogates.txt", SENTENCE.encode() + b"\xed\xa0\x80\xed\xb0\x80", text=SENTENCE)
    lone = (SENTENCE * 5).encode("utf-16") + b"\x00\xd8" + " And more.".encode("utf-16-le")
    yield Case("utf-16-lone-surrogate.txt", lone, text=SENTENCE)
    yield Case("utf-16-odd.txt", SENTENCE.encode("utf-16") + b"x", text=SENTENCE)
    yield Case("line-ends.txt", b"One row\r\nan order.\r\rThe next\nparagraph.\n\r", text="One row\n\nan order.")
    yield Case("nul.txt", b"Rows\0 are kept for\0 seven years.\0", text=SENTENCE)
    yield Case(
        "direction.txt", "Rows \u202eare\u202c \u2067kept\u2069 \u200ffor seven years.".encode(), text="Rows"
    )
    yield Case("emoji.txt", ("👩\u200d👩\u200d👧\u200d👦🏳️\u200d🌈" * 90).encode(), text="👩")
    yield Case("accents.txt", ("a" + "\u0301" * 3000).encode())
    yield Case("one-word-a-line.txt", b"word\n" * 2000, text="word")


def liars() -> Iterator[Case]:
    yield Case("word-named.pdf", word(), text=SENTENCE)
    yield Case("pdf-named.docx", pdf(shown(SENTENCE)), text=SENTENCE)
    yield Case("text-named.xlsx", SENTENCE.encode(), text=SENTENCE)
    yield Case("page-named.txt", f"<html><body><p>{SENTENCE}</p></body></html>".encode(), text=SENTENCE)
    yield Case("workbook-named.docx", workbook(), text=SENTENCE)
    yield Case("image-named.pdf", b"\x89PNG\r\n\x1a\n" + bytes(64), "unsupported_type")
    yield Case("program-named.txt", b"\x7fELF\2\1\1" + bytes(64), "unsupported_type")
    yield Case("gzip-named.docx", b"\x1f\x8b\x08\x00" + bytes(range(256)), "unsupported_type")
    yield Case(
        "drawing-named.html", b'<svg xmlns="http://www.w3.org/2000/svg"><text>x</text></svg>', "unsupported_type"
    )


def empties() -> Iterator[Case]:
    for suffix in ("pdf", "docx", "txt", "csv", "html", "md", "rtf", "eml"):
        yield Case(f"nothing.{suffix}", b"", "empty")
    yield Case("empty.pdf", pdf(b""), "empty")
    yield Case("empty.docx", word(""), "empty")
    yield Case("empty.xlsx", workbook(""), "empty")
    yield Case("empty.odt", open_document(""), "empty")
    yield Case("empty.epub", book(""), "empty")
    yield Case("empty.rtf", b"{\\rtf1}", "empty")
    yield Case("empty.html", b"<html><body></body></html>", "empty")
    yield Case("empty.txt", " \n\t\u200b\ufeff\n".encode(), "empty")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for case in cases():
        (FOLDER / case.name).write_bytes(case.content)
