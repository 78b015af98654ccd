from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from services.ingest.domain.models import OwnerType
from services.ingest.entrypoints.http.dependencies import Caller, SmallBody, Writer, gateway_of
from services.ingest.entrypoints.http.problems import responses
from services.ingest.handlers import channels as handlers

MAX_KNOWLEDGE_BASES = 100  # as many as one search takes

router = APIRouter(prefix="/channels", tags=["channels"])

ChannelId = Annotated[
    str, Path(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$", examples=["slack:C024BE91L"])
]
Team = Annotated[UUID | None, Query(description="The team whose channel it is; by default it is yours.")]


class ChannelSettingsIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kb_ids: list[UUID] = Field(max_length=MAX_KNOWLEDGE_BASES, examples=[["0b54a5a2-6f3c-4c8e-9a53-0f3a3a8f2f11"]])


class ChannelSettingsOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: str
    owner_type: OwnerType
    owner_id: UUID
    kb_ids: list[UUID] = Field(description="Those that you can see.")


@router.put("/{channel_id}/settings", dependencies=[SmallBody], responses=responses(403, 404, 413))
async def set_settings(
    request: Request, caller: Writer, channel_id: ChannelId, body: ChannelSettingsIn, team: Team = None
) -> ChannelSettingsOut:
    """Sets which knowledge bases a chat channel uses. Channel ids are each owner's own."""
    channel = await handlers.set_channel(gateway_of(request).channels, caller, channel_id, team, body.kb_ids)
    return ChannelSettingsOut.model_validate(channel)


@router.get("/{channel_id}/settings", responses=responses(404))
async def get_settings(
    request: Request, caller: Caller, channel_id: ChannelId, team: Team = None
) -> ChannelSettingsOut:
    """The knowledge bases that a channel uses, less those that are deleted or not yours to see."""
    channel = await handlers.get_channel(gateway_of(request).channels, caller, channel_id, team)
    return ChannelSettingsOut.model_validate(channel)
