"""The texts of a skill stand beside its module, in a folder of its name, one Markdown file a chunk."""

from collections.abc import Callable
from pathlib import Path

from services.skills.domain.skills import ChunkCategory, SkillChunk


def texts_of(module_file: str) -> Callable[[str, str, ChunkCategory], SkillChunk]:
    """Makes chunks of an id, a title and a category, with the text of `<module>/<id>.md`."""
    folder = Path(module_file).with_suffix("")

    def chunk(chunk_id: str, title: str, category: ChunkCategory) -> SkillChunk:
        return SkillChunk(
            chunk_id, title, (folder / f"{chunk_id}.md").read_text(encoding="utf-8").strip(), category
        )

    return chunk
