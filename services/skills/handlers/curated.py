from dataclasses import dataclass
from typing import Final

from kbmesh.errors import InvalidArgument
from services.skills.domain.paging import decode_token, encode_token
from services.skills.domain.records import records_of
from services.skills.domain.skills import Skill
from services.skills.ports import RecordOutbox, SkillCatalog

DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 100


@dataclass(frozen=True, slots=True)
class SkillPage:
    """`next_token` is empty on the last page."""

    skills: list[Skill]
    next_token: str


def list_skills(page_size: int, page_token: str, *, catalog: SkillCatalog) -> SkillPage:
    """One page in order of id; `page_size` 0 means 50.

    Raises:
        InvalidArgument: the size is out of range, or the token is not one that was returned here.
    """
    if not 0 <= page_size <= MAX_PAGE_SIZE:
        raise InvalidArgument(f"page_size is 0 to {MAX_PAGE_SIZE}, not {page_size}", code="bad_page_size")
    size = page_size or DEFAULT_PAGE_SIZE
    after = decode_token(page_token)
    rest = [skill for skill in catalog.all() if skill.id > after]
    page = rest[:size]
    return SkillPage(page, encode_token(page[-1].id) if len(rest) > size else "")


def get_skill(skill_id: str, *, catalog: SkillCatalog) -> Skill:
    """One skill with its chunks.

    Raises:
        NotFound: there is none of this id.
    """
    return catalog.get(skill_id)


async def publish_skills(*, catalog: SkillCatalog, outbox: RecordOutbox, revision: int) -> int:
    """Hands every chunk of every skill over to search and returns how many.

    Publishing unchanged skills again is harmless: the consumer skips a row whose content it has.

    Args:
        revision: milliseconds since the epoch, so that a later publication supersedes this one.
    """
    records = [record for skill in catalog.all() for record in records_of(skill, revision)]
    await outbox.publish(records)
    return len(records)
