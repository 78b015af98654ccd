import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbmesh.errors import InvalidArgument
from services.ingest.domain.filename import MAX_LENGTH, clean_filename


@pytest.mark.parametrize(
    ("given_name", "shown"),
    [
        ("plan.pdf", "plan.pdf"),
        ("/etc/../plan.pdf", "plan.pdf"),
        ("C:\\files\\plan.pdf", "plan.pdf"),
        ("a\u202egnp.exe", "agnp.exe"),
        ("  two   spaces .txt ", "two spaces .txt"),
        ("e\u0301te\u0301.txt", "été.txt"),
        ("📊 報告.md", "📊 報告.md"),
    ],
)
def test_a_name_is_what_one_can_show_and_compare(given_name: str, shown: str) -> None:
    assert clean_filename(given_name) == shown


@pytest.mark.parametrize("name", ["", "/", "..", "a/..", "\x00\u200b", "x" * (MAX_LENGTH + 1)])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="filename_"):
        clean_filename(name)


@given(st.text(max_size=400))
def test_cleaning_is_idempotent_and_never_leaves_a_path(name: str) -> None:
    try:
        cleaned = clean_filename(name)
    except InvalidArgument:
        return
    assert clean_filename(cleaned) == cleaned
    assert not set(cleaned) & {"/", "\\", "\x00", "\n"}
    cleaned.encode()
