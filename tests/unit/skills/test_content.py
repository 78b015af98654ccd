import re
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from kbmesh.models import bundled_model_path
from services.skills import content
from services.skills.content import databricks_sql_patterns
from services.skills.domain.registry import CURATED, check_skill
from services.skills.domain.resolver import MIN_SHARE, OVERLAY, Budgets, resolve
from services.skills.domain.skills import ChunkCategory, ListedChunk, Skill, SkillChunk

SKILLS = CURATED.all()
CHUNKS = [(skill, chunk) for skill in SKILLS for chunk in skill.chunks]
chunks = pytest.mark.parametrize(
    ("skill", "chunk"), CHUNKS, ids=[f"{skill.id}/{chunk.id}" for skill, chunk in CHUNKS]
)


def test_every_listed_module_has_registered_its_skill() -> None:
    assert [skill.id for skill in SKILLS] == sorted(name.replace("_", "-") for name in content.__all__)


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.id)
def test_a_curated_skill_keeps_the_rules_of_the_registry(skill: Skill) -> None:
    check_skill(skill)


@chunks
def test_code_in_a_chunk_is_closed(skill: Skill, chunk: SkillChunk) -> None:
    assert chunk.content.count("```") % 2 == 0
    prose = re.sub(r"```.*?```", "", chunk.content, flags=re.DOTALL)
    assert prose.count("`") % 2 == 0


@chunks
def test_parentheses_of_a_query_are_balanced(skill: Skill, chunk: SkillChunk) -> None:
    for query in re.findall(r"```sql\n(.*?)```", chunk.content, flags=re.DOTALL):
        assert query.count("(") == query.count(")")


@chunks
def test_a_chunk_fits_into_one_embedding(skill: Skill, chunk: SkillChunk) -> None:
    tokenizer = Tokenizer.from_file(str(bundled_model_path() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()

    assert len(tokenizer.encode(chunk.content).ids) <= 512


RULES = [listed for listed in CURATED.chunks() if listed.chunk.category in OVERLAY]


@pytest.mark.parametrize("listed", RULES, ids=lambda listed: listed.id.chunk)
def test_the_first_sentence_of_a_rule_fits_into_the_least_share_of_a_prompt(listed: ListedChunk) -> None:
    assert resolve([listed], Budgets(overlay=MIN_SHARE, context=0)).overlay_chunks


def test_databricks_sql_has_rules_patterns_anti_patterns_and_examples() -> None:
    categories = {chunk.category for chunk in databricks_sql_patterns.SKILL.chunks}

    assert categories >= {
        ChunkCategory.RULES,
        ChunkCategory.PATTERNS,
        ChunkCategory.ANTI_PATTERNS,
        ChunkCategory.EXAMPLES,
    }


@pytest.mark.parametrize("module", content.__all__)
def test_no_text_beside_a_module_is_left_unused(module: str) -> None:
    texts = Path(content.__path__[0], module).glob("*")

    assert {path.stem for path in texts} <= {chunk.id for chunk in CURATED.get(module.replace("_", "-")).chunks}
