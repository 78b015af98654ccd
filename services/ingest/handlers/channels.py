from collections.abc import Sequence
from uuid import UUID

from kbmesh.auth import Principal
from kbmesh.errors import NotFound
from services.ingest.domain.models import Channel, OwnerType
from services.ingest.handlers.knowledge_bases import owner_for_writing, unknown_knowledge_base
from services.ingest.ports import Channels


async def set_channel(
    channels: Channels, principal: Principal, channel_id: str, team: UUID | None, kb_ids: Sequence[UUID]
) -> Channel:
    """Sets which knowledge bases a channel of the caller, or of `team`, uses; the first call makes the channel.

    Raises:
        PermissionDenied: the caller does not edit for that team.
        NotFound: one of the knowledge bases is not there for the caller to see.
    """
    owner_type = OwnerType.USER if team is None else OwnerType.TEAM
    owner_id = owner_for_writing(principal, owner_type, team)
    channel = Channel(owner_type, owner_id, channel_id, tuple(dict.fromkeys(kb_ids)))
    if not await channels.save(principal, channel):
        raise unknown_knowledge_base()
    return channel


async def get_channel(channels: Channels, principal: Principal, channel_id: str, team: UUID | None) -> Channel:
    """A channel with those of its knowledge bases that the caller sees today.

    Raises:
        NotFound: never set, or of a team that the caller is no member of.
    """
    owner_type = OwnerType.USER if team is None else OwnerType.TEAM
    found = await channels.find(principal, owner_type, team or principal.sub, channel_id)
    if found is None:
        raise NotFound("no such channel", code="channel_not_found")
    return found
