from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbmesh.models import bundled_model_path
from services.ingest.adapters import splitter as module
from services.ingest.adapters.splitter import TokenizerSplitter

SPLITTER = TokenizerSplitter(bundled_model_path() / "tokenizer.json", max_tokens=22, overlap=5)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(module, "_MAX_CHARS_AT_ONCE", 50)
    return 50


@pytest.mark.parametrize("text", ["Rows are kept. " * 40, "Rows are kept.\n" * 40, "Rows" + " " * 99 + "kept"])
def test_a_long_text_counts_as_much_in_portions_as_at_once(
    text: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_portions = SPLITTER.count(text)
    monkeypatch.setattr(module, "_MAX_CHARS_AT_ONCE", 10**6)
    assert in_portions == SPLITTER.count(text) > 1


@pytest.mark.parametrize("text", ["Rows are kept. " * 40, "x" * 400, "Rows " * 9 + "x" * 400 + " kept" * 9])
def test_what_is_split_in_portions_is_covered_and_within_the_limits(text: str, at_once: int) -> None:
    spans = SPLITTER.split(text, 10, SPLITTER.limit)
    assert SPLITTER.count(text[slice(*spans[0])]) <= 10
    assert all(SPLITTER.count(text[start:end]) <= SPLITTER.limit for start, end in spans)
    covered: set[int] = set().union(*(range(*span) for span in spans))
    assert all(text[index].isspace() for index in set(range(len(text))) - covered)
    assert spans == sorted(spans)


def test_the_libraries_never_get_more_than_a_portion(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given_to: list[int] = []

    class Watched:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def encode(self, text: str, **options: Any) -> Any:
            given_to.append(len(text))
            return self._inner.encode(text, **options)

    splitter = TokenizerSplitter(bundled_model_path() / "tokenizer.json")
    monkeypatch.setattr(splitter, "_tokenizer", Watched(splitter._tokenizer))
    splitter.count("x" * 1000)
    splitter.count("Rows are kept. " * 100)
    assert given_to
    assert max(given_to) <= at_once


@given(st.text(st.sampled_from("ab \n"), max_size=60), st.integers(0, 5))
def test_portions_are_the_text_in_order_and_none_is_empty(text: str, start: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_CHARS_AT_ONCE", 4)
        portions = list(module._portions(text, start))
    assert "".join(text[a:b] for a, b in portions) == text[start:]
    assert all(0 < b - a <= 4 for a, b in portions[:-1])
