import pytest

from kbmesh.errors import InvalidArgument
from services.skills.domain.registry import SkillRegistry
from services.skills.domain.resolver import Budgets, ResolvedChunk, default_budgets, resolve
from services.skills.domain.skills import (
    ChunkCategory,
    ChunkId,
    GeniePass,
    Intent,
    ListedChunk,
    PipelineStep,
    Relevance,
    Skill,
    SkillChunk,
)

AMPLE = Budgets(10_000, 10_000)
TEN_RULES = "\n".join(f"- Rule {number} of this chunk says this." for number in range(10))


def listed(name: str, content: str, category: ChunkCategory, limit: int | None = None) -> ListedChunk:
    """`name` is "<skill>/<chunk>"."""
    skill, chunk = name.split("/")
    return ListedChunk(ChunkId(skill, chunk), SkillChunk(chunk, chunk.title(), content, category, limit))


def rules(name: str, content: str = TEN_RULES) -> ListedChunk:
    return listed(name, content, ChunkCategory.RULES)


def pattern(name: str, content: str, limit: int | None = None) -> ListedChunk:
    return listed(name, content, ChunkCategory.PATTERNS, limit)


def names(chunks: tuple[ResolvedChunk, ...] | tuple[ChunkId, ...]) -> list[str]:
    ids = [chunk.id if isinstance(chunk, ResolvedChunk) else chunk for chunk in chunks]
    return [f"{one.skill}/{one.chunk}" for one in ids]


def test_rules_and_anti_patterns_make_the_overlay_and_the_rest_is_context() -> None:
    resolved = resolve(
        [
            listed("a/keys", "Kpi.", ChunkCategory.KPIS),
            rules("a/do", "Do this."),
            listed("a/no", "Not that.", ChunkCategory.ANTI_PATTERNS),
            listed("a/show", "Example.", ChunkCategory.EXAMPLES),
        ],
        AMPLE,
    )

    assert resolved.system_overlay == "## Do\nDo this.\n\n## Avoid: No\nNot that."
    assert names(resolved.overlay_chunks) == ["a/do", "a/no"]
    assert names(resolved.context_sections) == ["a/keys", "a/show"]
    assert resolved.context_chars == len("KeysKpi.ShowExample.")
    assert resolved.left_out == ()


def test_every_chunk_says_a_few_rules_before_one_says_all_of_its_own() -> None:
    resolved = resolve([rules("a/one"), rules("a/two"), rules("a/three")], Budgets(600, 0))

    assert [4 <= chunk.content.count("\n") + 1 <= 6 for chunk in resolved.overlay_chunks] == [True] * 3
    assert all(chunk.shortened and chunk.content.endswith(" …") for chunk in resolved.overlay_chunks)


def test_skills_take_turns_without_a_question() -> None:
    resolved = resolve([rules("a/one"), rules("a/two"), rules("b/one"), rules("b/two")], Budgets(400, 0))

    assert names(resolved.overlay_chunks) == ["a/one", "b/one"]
    assert names(resolved.left_out) == ["a/two", "b/two"]


def test_the_nearest_comes_first_and_says_most() -> None:
    chunks = [rules("a/one"), rules("a/two"), rules("a/three")]
    nearness = {chunk.id: near for chunk, near in zip(chunks, (0.1, 0.9, 0.5), strict=True)}

    resolved = resolve(chunks, Budgets(800, 0), nearness)

    assert names(resolved.overlay_chunks) == ["a/two", "a/three", "a/one"]
    lengths = [len(chunk.content) for chunk in resolved.overlay_chunks]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > len(TEN_RULES) * 0.8 > lengths[1]
    assert resolved.by_relevance


def test_chunks_that_are_equally_near_keep_their_order() -> None:
    chunks = [rules(f"a/{name}") for name in ("c", "a", "b")]

    assert names(resolve(chunks, AMPLE, {chunk.id: 0.5 for chunk in chunks}).overlay_chunks) == [
        "a/c",
        "a/a",
        "a/b",
    ]


def test_a_chunk_keeps_within_its_own_budget() -> None:
    [section] = resolve([pattern("a/one", "First sentence. Second sentence.", 20)], AMPLE).context_sections

    assert (section.content, section.shortened) == ("First sentence. …", True)


def test_a_section_that_does_not_fit_leaves_its_room_to_the_next() -> None:
    resolved = resolve([pattern("a/long", "word " * 100), pattern("a/short", "Short.")], Budgets(0, 100))

    assert names(resolved.context_sections) == ["a/short"]
    assert names(resolved.left_out) == ["a/long"]


def test_a_pattern_keeps_its_code_or_ends_before_it() -> None:
    content = "Do so.\n\n```sql\nSELECT 1\n```\n\nThen that."
    whole, cut = (
        resolve([pattern("a/one", content)], Budgets(0, len("One") + room)).context_sections[0]
        for room in (len(content), len(content) - 1)
    )

    assert (whole.content, whole.shortened) == (content, False)
    assert (cut.content, cut.shortened) == ("Do so.\n\n```sql\nSELECT 1\n```\n\n…", True)


@pytest.mark.parametrize(
    ("target", "budgets"),
    [
        (Intent.BUSINESS, (1200, 4000)),
        (PipelineStep.SCORING, (1200, 4000)),
        (GeniePass.METRIC_VIEWS, (600, 2000)),
        (GeniePass.INSTRUCTIONS, (800, 2000)),
    ],
)
def test_a_target_has_its_budgets(target: Intent | PipelineStep | GeniePass, budgets: tuple[int, int]) -> None:
    assert default_budgets(target) == Budgets(*budgets)


@pytest.mark.parametrize("budgets", [(-1, 0), (0, -1), (100_001, 0), (0, 100_001)])
def test_a_budget_out_of_range_is_refused(budgets: tuple[int, int]) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Budgets(*budgets)

    assert refused.value.code == "budget_out_of_range"


def test_the_registry_finds_skills_and_chunks_by_target_in_order_of_id() -> None:
    registry = SkillRegistry()
    relevances = {
        "c": Relevance(intents=(Intent.DASHBOARD,)),
        "b": Relevance(intents=(Intent.DASHBOARD,), genie_passes=(GeniePass.BENCHMARKS,)),
        "a": Relevance(pipeline_steps=(PipelineStep.DASHBOARD_DESIGN,)),
    }
    for skill_id, relevance in relevances.items():
        chunks = tuple(SkillChunk(name, name, "Text.", ChunkCategory.RULES) for name in ("z", "y"))
        registry.register(Skill(skill_id, skill_id, "", relevance, chunks))

    assert [skill.id for skill in registry.skills_for(Intent.DASHBOARD)] == ["b", "c"]
    assert [skill.id for skill in registry.skills_for(GeniePass.BENCHMARKS)] == ["b"]
    assert [skill.id for skill in registry.skills_for(PipelineStep.DASHBOARD_DESIGN)] == ["a"]
    assert registry.skills_for(Intent.BUSINESS) == []
    assert [chunk.id for chunk in registry.chunks_for(Intent.DASHBOARD)] == [
        ChunkId("b", "z"),
        ChunkId("b", "y"),
        ChunkId("c", "z"),
        ChunkId("c", "y"),
    ]
    assert len(registry.chunks()) == 6
