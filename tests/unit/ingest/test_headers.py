"""What the model reads ahead of a chunk, measured with the bundled model's own tokenizer."""

import pytest

from kbmesh.models import bundled_model_path
from kbmesh.provenance import Category
from services.ingest.adapters.splitter import TokenizerSplitter
from services.ingest.domain.headers import MAX_TOKENS, Origin, compose_header


@pytest.fixture(scope="module")
def splitter() -> TokenizerSplitter:
    return TokenizerSplitter(bundled_model_path() / "tokenizer.json")


DICTIONARY = Origin("data_dictionary.md", Category.DATA_DICTIONARY)


def test_a_header_names_file_category_and_section(splitter: TokenizerSplitter) -> None:
    assert compose_header(DICTIONARY, splitter, ("Tables", "customers")) == (
        "File: data_dictionary.md\nCategory: data dictionary\nSection: Tables > customers"
    )


def test_text_before_the_first_heading_has_no_section(splitter: TokenizerSplitter) -> None:
    assert compose_header(DICTIONARY, splitter, ()) == "File: data_dictionary.md\nCategory: data dictionary"


def test_a_name_without_a_letter_and_the_category_other_say_nothing(splitter: TokenizerSplitter) -> None:
    nameless = Origin("20260114-0003.pdf", Category.OTHER)
    assert compose_header(nameless, splitter, ()) == ""
    assert compose_header(nameless, splitter, ("Tables",)) == "Section: Tables"
    assert compose_header(Origin("notes", Category.OTHER), splitter, ()) == "File: notes"


def test_of_a_deep_path_the_inner_headings_are_kept(splitter: TokenizerSplitter) -> None:
    path = tuple(f"Chapter {n} of the handbook" for n in range(1, 20))
    header = compose_header(DICTIONARY, splitter, path)
    assert header.endswith("> Chapter 18 of the handbook > Chapter 19 of the handbook")
    assert "Chapter 1 of" not in header
    assert splitter.count(header) <= MAX_TOKENS


@pytest.mark.parametrize(
    ("filename", "headings"),
    [
        ("a_b-" * 60 + ".md", ("Tables",)),
        ("数据" * 100 + ".pdf", ("質量管理" * 100,)),
        ("x" * 255, ("y" * 5000, "z" * 5000)),
        ("report.pdf", ("word " * 127,)),
    ],
    ids=["name", "no spaces", "unbroken", "heading"],
)
def test_long_names_and_headings_are_cut(
    splitter: TokenizerSplitter, filename: str, headings: tuple[str, ...]
) -> None:
    header = compose_header(Origin(filename, Category.GOVERNANCE_POLICY), splitter, headings)
    name, category, section = header.split("\n")
    assert splitter.count(header) <= MAX_TOKENS
    assert len(header) < 500
    assert len(name) > len("File: ")
    assert category == "Category: governance policy"
    assert len(section) > len("Section: ")
