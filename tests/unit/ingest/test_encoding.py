import pytest

from services.ingest.domain.encoding import decode_html, decode_text

JAPANESE = "これは保存期間の方針です。七年間、保存します。"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("Maß — 数据".encode(), "Maß — 数据"),
        ("Maß".encode("utf-8-sig"), "Maß"),
        ("Maß 数据".encode("utf-16"), "Maß 数据"),
        (b"\xfe\xff" + "Maß".encode("utf-16-be"), "Maß"),
        ("Rows are kept".encode("utf-16-le"), "Rows are kept"),
        ("Rows are kept".encode("utf-16-be"), "Rows are kept"),
        ("„Maß“ – 5 €".encode("cp1252"), "„Maß“ – 5 €"),
        ("Größe, café, año".encode("latin-1"), "Größe, café, año"),
        (b"\xe4\x81", "ä\x81"),
        (b"a\x00b", "a\x00b"),
        (b"\xff\xfea", "�"),
        (JAPANESE.encode("cp932"), JAPANESE),
        (JAPANESE.encode("cp932")[:-1], JAPANESE[:-1] + "�"),
        (JAPANESE.encode(), JAPANESE),
        ("one\r\ntwo\rthree\nfour".encode("latin-1"), "one\r\ntwo\rthree\nfour"),
    ],
)
def test_text_is_decoded_by_its_own_encoding(data: bytes, expected: str) -> None:
    assert decode_text(data) == expected


@pytest.mark.parametrize(
    "text",
    ["é", "Ñandú", "ƒ(x) = 2", "ƒX ƒY ƒZ", "‚Ärger‘ ‚Öl‘ ‚Übel‘", "naïve façade", "±5 µm"],
)
def test_a_short_latin_text_is_never_taken_for_japanese(text: str) -> None:
    assert decode_text(text.encode("cp1252")) == text


@pytest.mark.parametrize(
    ("charset", "codec", "text"),
    [
        ("Shift_JIS", "cp932", "保存期間"),
        ("windows-1251", "cp1251", "Срок хранения"),
        ("iso-8859-2", "iso-8859-2", "Łódź"),
        ("ISO-8859-1", "cp1252", "“Größe” 5 €"),
        ("gb2312", "gb18030", "数据"),
        ("utf-8", "cp1252", "Größe"),
        ("no-such-charset", "cp1252", "Größe"),
        ("zlib", "cp1252", "Größe"),
        ("windows-1251", "utf-8", "Größe"),
    ],
)
def test_a_page_is_read_in_the_charset_it_declares_unless_it_is_unicode(
    charset: str, codec: str, text: str
) -> None:
    for meta in (
        f'<meta charset="{charset}">',
        f'<META http-equiv="Content-Type" content="text/html; charset={charset}">',
    ):
        page = f"<html><head>{meta}</head><body><p>{text}</p></body></html>"
        assert decode_html(page.encode(codec)) == page
