"""What language models are told of this system, and how its answers are put to them."""

from kbmesh.tools.kb_search import (
    Citation,
    KbSearchArguments,
    KbSearchResult,
    Passage,
    ToolDefinition,
    definition,
)
from kbmesh.tools.rendering import render

__all__ = [
    "Citation",
    "KbSearchArguments",
    "KbSearchResult",
    "Passage",
    "ToolDefinition",
    "definition",
    "render",
]
