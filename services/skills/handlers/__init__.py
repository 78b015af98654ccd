from services.skills.handlers.curated import MAX_PAGE_SIZE, SkillPage, get_skill, list_skills, publish_skills
from services.skills.handlers.nearness import Nearness
from services.skills.handlers.resolve import (
    Ask,
    resolve_for_genie_pass,
    resolve_for_intent,
    resolve_for_pipeline_step,
)

__all__ = [
    "MAX_PAGE_SIZE",
    "Ask",
    "Nearness",
    "SkillPage",
    "get_skill",
    "list_skills",
    "publish_skills",
    "resolve_for_genie_pass",
    "resolve_for_intent",
    "resolve_for_pipeline_step",
]
