from dataclasses import replace
from typing import TypeVar

from kbmesh.errors import NotFound
from services.search.domain.retrieval import Visibility
from services.search.ports import PassageStore

V = TypeVar("V", bound=Visibility)


async def within_channel(channel_id: str, visible: V, store: PassageStore) -> V:
    """`visible`, of the bases of that channel alone.

    Raises:
        NotFound: channel_not_found. The caller sees no channel of that id.
    """
    kb_ids = await store.channel_bases(visible, channel_id)
    if kb_ids is None:
        raise NotFound("no such channel", code="channel_not_found")
    return replace(visible, kb_ids=kb_ids if visible.kb_ids is None else kb_ids & visible.kb_ids)
