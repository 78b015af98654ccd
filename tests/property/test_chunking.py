"""Chunks of generated documents, measured with the bundled model's own tokenizer."""

import re
from functools import cache, partial
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from kbmesh.models import bundled_model_path
from kbmesh.provenance import Category
from services.ingest.adapters.splitter import TokenizerSplitter
from services.ingest.domain.chunking import MAX_CHUNK_CHARS, chunk
from services.ingest.domain.extraction import Block, ChunkDraft, ExtractedDocument, Part, assemble
from services.ingest.domain.headers import MAX_TOKENS, Origin, compose_header

TOKENIZER = bundled_model_path() / "tokenizer.json"
LATIN_WORD = re.compile(r"[a-zA-Zà-ÿ0-9]+")

thorough = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

words = st.one_of(
    st.sampled_from(
        [
            "the",
            "orders",
            "table",
            "holds",
            "revenue",
            "per",
            "customer",
            "and",
            "is",
            "loaded",
            "nightly",
            "by",
            "déjà-vu",
            "jobs",
            "数据",
            "質量管理",
            "naïve",
            "user_id",
            "http://example.org/a/b?c=1",
            "3.14",
            "(see",
            "e.g.",
            "ß)",
            "don't",
            "co-operate",
            "🦉",
            "שלום",
        ]
    ),
    st.text(min_size=1, max_size=8),
    st.integers(20, 250).map(lambda length: "abcdefghij"[length % 10] * length),
)
sentences = st.builds(
    lambda some, times, end: " ".join(some * times) + end,
    st.lists(words, min_size=1, max_size=8),
    st.sampled_from([1, 1, 1, 2, 20]),
    st.sampled_from([".", "?", "!", "。", ""]),
)
paragraphs = st.builds(
    lambda some, times, joint: joint.join(some * times),
    st.lists(sentences, min_size=1, max_size=4),
    st.sampled_from([1, 2, 6]),
    st.sampled_from([" ", "\n"]),
)
cells = st.lists(words, min_size=0, max_size=3).map(" ".join)
tables = st.builds(
    lambda some, times: "\n".join(" | ".join(row) for row in some * times),
    st.lists(st.lists(cells, min_size=1, max_size=4), min_size=1, max_size=5),
    st.sampled_from([1, 4, 20]),
)
titles = st.lists(words, min_size=1, max_size=5).map(" ".join)
parts = st.one_of(
    st.builds(lambda text, level: Part("heading", text, level=level), titles, st.sampled_from([None, 1, 2, 3])),
    st.builds(lambda text, page: Part("text", text, page), paragraphs, st.integers(1, 9)),
    st.builds(lambda text: Part("table", text), tables),
)
documents = st.lists(parts, max_size=6).map(assemble)


@cache
def splitter(max_tokens: int) -> TokenizerSplitter:
    return TokenizerSplitter(TOKENIZER, max_tokens=max_tokens)


@cache
def plain_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def cut(document: ExtractedDocument, max_tokens: int = 512) -> list[ChunkDraft]:
    return chunk(document, splitter(max_tokens))


def small_headings(document: ExtractedDocument, quarter: int) -> list[Block]:
    count = splitter(512).count
    return [b for b in document.blocks if b.kind == "heading" and count(document.text[b.start : b.end]) <= quarter]


@thorough
@given(documents)
def test_a_chunk_is_the_text_under_its_span_and_chunking_is_deterministic(document: ExtractedDocument) -> None:
    drafts = cut(document)
    assert all(draft.content == document.text[draft.char_start : draft.char_end] for draft in drafts)
    assert all(draft.content.strip() for draft in drafts)
    assert [draft.ordinal for draft in drafts] == list(range(len(drafts)))
    assert drafts == cut(document)


@thorough
@given(documents)
def test_no_chunk_is_longer_than_the_model_reads(document: ExtractedDocument) -> None:
    for draft in cut(document):
        assert len(plain_tokenizer().encode(draft.content).ids) <= 512
        assert len(draft.content) <= MAX_CHUNK_CHARS
        assert draft.token_count == len(plain_tokenizer().encode(draft.content, add_special_tokens=False).ids)


@thorough
@given(documents)
def test_all_of_the_text_is_in_some_chunk(document: ExtractedDocument) -> None:
    covered = bytearray(len(document.text))
    for draft in cut(document):
        covered[draft.char_start : draft.char_end] = b"\x01" * len(draft.content)
    assert all(flag or char.isspace() for flag, char in zip(covered, document.text, strict=True))


@thorough
@given(documents)
def test_no_cut_is_inside_a_word(document: ExtractedDocument) -> None:
    edges = {edge for draft in cut(document) for edge in (draft.char_start, draft.char_end)}
    for word in LATIN_WORD.finditer(document.text):
        assert not any(edge in edges for edge in range(word.start() + 1, word.end()))


@thorough
@given(documents)
def test_chunks_move_on_and_repeat_no_more_than_the_overlap(document: ExtractedDocument) -> None:
    drafts = cut(document)
    for before, after in pairwise(drafts):
        assert before.char_start < after.char_start
        assert before.char_end < after.char_end
        repeated = document.text[after.char_start : max(after.char_start, before.char_end)]
        assert splitter(512).count(repeated) <= 64


@thorough
@given(documents)
def test_a_table_is_whole_where_it_fits_and_alone_where_it_does_not(document: ExtractedDocument) -> None:
    drafts = cut(document)
    under_heading = 0
    under_heading_start = None
    for block in document.blocks:
        if block.kind == "heading":
            under_heading += splitter(512).count(document.text[block.start : block.end])
            under_heading_start = block.start if under_heading_start is None else under_heading_start
            continue
        if block.kind == "table":
            size = under_heading + splitter(512).count(document.text[block.start : block.end])
            touching = [d for d in drafts if d.char_start < block.end and d.char_end > block.start]
            characters = block.end - (block.start if under_heading_start is None else under_heading_start)
            if size <= splitter(512).limit and characters <= MAX_CHUNK_CHARS:
                assert len(touching) == 1
            if len(touching) > 1:
                assert not any(
                    other.kind == "text" and draft.char_start < other.end and draft.char_end > other.start
                    for draft in touching
                    for other in document.blocks
                )
        under_heading, under_heading_start = 0, None


@thorough
@given(documents)
def test_a_heading_opens_a_chunk_or_joins_a_small_one_and_stays_with_its_text(document: ExtractedDocument) -> None:
    count, quarter = splitter(512).count, splitter(512).limit // 4
    headings = small_headings(document, quarter)
    following = dict(pairwise(document.blocks))
    for draft in cut(document):
        for heading in headings:
            if draft.char_start < heading.start < draft.char_end:
                assert count(document.text[draft.char_start : heading.start]) < quarter
            if heading.end == draft.char_end and heading in following:
                assert following[heading] in headings


origins = st.builds(
    Origin,
    st.one_of(
        st.just("data_dictionary.md"),
        st.text(min_size=1, max_size=255),
        st.text("a_-1", min_size=200, max_size=255),
    ),
    st.sampled_from(Category),
)


@thorough
@given(documents, origins)
def test_a_chunk_and_its_header_are_together_no_longer_than_the_model_reads(
    document: ExtractedDocument, origin: Origin
) -> None:
    for draft in chunk(document, splitter(512), partial(compose_header, origin, splitter(512))):
        assert len(plain_tokenizer().encode(f"{draft.header}\n\n{draft.content}").ids) <= 512
        assert splitter(512).count(draft.header) <= MAX_TOKENS
        assert draft.content.strip()
        assert draft.content == document.text[draft.char_start : draft.char_end]


def test_a_change_of_one_line_or_of_one_heading_leaves_the_other_chunks_and_headers_as_they_were() -> None:
    def read(parts: list[Part]) -> set[tuple[str, str]]:
        origin = Origin("handbook.md", Category.GOVERNANCE_POLICY)
        drafts = chunk(assemble(parts), splitter(512), partial(compose_header, origin, splitter(512)))
        return {(draft.header, draft.content) for draft in drafts}

    def section(n: int, title: str = "Retention of orders") -> list[Part]:
        lines = "\n\n".join(f"Rule {n}.{m}: the rows of region {m * n} are kept for {n} years." for m in range(60))
        return [Part("heading", f"{title} {n}", level=2), Part("text", lines)]

    parts = [part for n in range(40) for part in section(n)]
    before = read(parts)
    assert len(before) > 100
    edited = [*parts[:41], Part("text", parts[41].text.replace("Rule 20.7:", "Rule 20.7, new:")), *parts[42:]]
    assert 1 <= len(read(edited) - before) <= 4
    renamed = [*parts[:40], *section(20, "How long the orders of all customers are kept here"), *parts[42:]]
    assert 1 <= len(read(renamed) - before) <= 4


@thorough
@given(documents)
def test_smaller_models_get_smaller_chunks(document: ExtractedDocument) -> None:
    assert all(draft.token_count <= 254 for draft in cut(document, max_tokens=256))


@pytest.mark.timeout(30)
def test_a_megabyte_is_cut_in_seconds_into_overlapping_chunks_past_the_tokenizers_own_limit() -> None:
    sentence = "The orders table holds {} rows, and its owner checks every one of them at the end of the quarter. "
    text = "\n\n".join("".join(sentence.format(n + m) for m in range(9)) for n in range(1150))
    document = assemble([Part("text", text)])
    drafts = cut(document)
    assert len(text) > 1_000_000
    assert max(draft.token_count for draft in drafts) > 256
    repeated = [before.char_end - after.char_start for before, after in pairwise(drafts)]
    assert min(repeated) > 40
    assert all(document.text[draft.char_start :].startswith("The orders") for draft in drafts)
