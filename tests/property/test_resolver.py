"""What holds of resolved skills, whatever their texts and the budgets are."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from services.skills.domain.resolver import Budgets, resolve
from services.skills.domain.skills import ChunkCategory, ChunkId, ListedChunk, SkillChunk

words = st.sampled_from(
    ["word", "e.g.", "Über-lang", "3.5", "`a. b`", "1.", "(so)", "Ends.", "Ends!", "with:", "漢字。", "*b*"]
)
prose = st.lists(words, min_size=1, max_size=12).map(" ".join)
rules = st.lists(prose, min_size=1, max_size=4).map(lambda items: "\n".join(f"- {item}" for item in items))
lines = st.lists(st.sampled_from(["x = 1. y", "", "- no rule.", "# no", "  deeper. "]), max_size=4)
fenced = st.builds(
    lambda fence, body: "\n".join([fence + "CODE", *body, "CODE-END", fence]),
    st.sampled_from(["```", "~~~~"]),
    lines,
)
# Behind a paragraph: behind a list these lines would be prose of its last item.
indented = lines.map(lambda body: "So\n\n" + "\n".join(f"    {line}" for line in ["CODE", *body, "CODE-END"]))
blocks = st.one_of(prose, rules, st.just("# Heading"), fenced, indented, prose.map("> ".__add__))
structured = st.lists(blocks, min_size=1, max_size=6).map("\n\n".join)
contents = structured | st.text(min_size=1, max_size=200).filter(str.strip)
limits = st.none() | st.integers(1, 300)


@st.composite
def listings(draw: st.DrawFn) -> list[ListedChunk]:
    count = draw(st.integers(0, 6))
    return [
        ListedChunk(
            ChunkId(draw(st.sampled_from("abc")), str(number)),
            SkillChunk(
                str(number), draw(prose), draw(contents), draw(st.sampled_from(ChunkCategory)), draw(limits)
            ),
        )
        for number in range(count)
    ]


budgets = st.builds(Budgets, st.integers(0, 1_500), st.integers(0, 1_500))


@settings(max_examples=50, deadline=None)
@given(listings(), budgets, st.booleans())
def test_budgets_hold_and_every_chunk_is_used_or_left_out(
    chunks: list[ListedChunk], budgets: Budgets, by_relevance: bool
) -> None:
    nearness = {one.id: len(one.chunk.content) / 1_000 for one in chunks} if by_relevance else None

    resolved = resolve(chunks, budgets, nearness)

    assert len(resolved.system_overlay) <= budgets.overlay
    assert resolved.context_chars <= budgets.context
    used = [*resolved.overlay_chunks, *resolved.context_sections]
    assert sorted(map(str, [*(one.id for one in used), *resolved.left_out])) == sorted(
        str(one.id) for one in chunks
    )
    by_id = {one.id: one.chunk for one in chunks}
    for one in used:
        chunk = by_id[one.id]
        assert len(one.content) <= (chunk.max_char_budget or len(chunk.content))
        assert one.shortened == (one.content != chunk.content)
        assert not one.shortened or one.content.endswith("…")
        assert one.content in resolved.system_overlay or one in resolved.context_sections
    if nearness is not None:
        for listed in (resolved.overlay_chunks, resolved.context_sections):
            order = [nearness[one.id] for one in listed]
            assert order == sorted(order, reverse=True)


@settings(max_examples=80, deadline=None)
@given(structured, st.sampled_from([ChunkCategory.RULES, ChunkCategory.EXAMPLES]), st.integers(0, 400))
def test_words_and_blocks_of_code_are_whole_or_left_out(
    content: str, category: ChunkCategory, budget: int
) -> None:
    chunk = ListedChunk(ChunkId("a", "b"), SkillChunk("b", "T", content, category))

    resolved = resolve([chunk], Budgets(budget, budget))

    for one in (*resolved.overlay_chunks, *resolved.context_sections):
        kept = one.content.removesuffix("…").rstrip() if one.shortened else one.content
        assert is_subsequence(kept.split(), content.split())
        assert kept.count("CODE-END") * 2 == len(re.findall("CODE", kept))
        assert kept.count("```CODE") * 2 == kept.count("```")
        assert kept.count("~~~~CODE") * 2 == kept.count("~~~~")


def is_subsequence(some: list[str], of: list[str]) -> bool:
    rest = iter(of)
    return all(word in rest for word in some)
