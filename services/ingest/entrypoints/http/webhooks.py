from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from services.ingest.domain.webhooks import DeliveryStatus, EventStatus, Webhook
from services.ingest.entrypoints.http.dependencies import Caller, SmallBody, gateway_of
from services.ingest.entrypoints.http.problems import responses
from services.ingest.handlers import webhooks as handlers

router = APIRouter(prefix="/webhooks", tags=["webhooks"])

Endpoint = Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=r"^[\x21-\x7e]*$")]


class WebhookIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    endpoint: Endpoint = Field(examples=["https://example.com/kbmesh"])
    events: list[EventStatus] = Field([], max_length=20, description="States to be told of; none: all.")
    kb_ids: list[UUID] = Field([], max_length=100, description="Knowledge bases; none: all that you may see.")


class WebhookOut(BaseModel):
    id: UUID
    endpoint: str
    events: list[EventStatus]
    kb_ids: list[UUID]
    created_at: datetime
    rotated_at: datetime | None = Field(description="When the secret was replaced last.")
    disabled_at: datetime | None = Field(
        description="Since when nothing is sent, because the endpoint answered 410 Gone."
    )

    @classmethod
    def of(cls, webhook: Webhook) -> "WebhookOut":
        return cls(
            id=webhook.id,
            endpoint=webhook.endpoint,
            events=list(webhook.statuses),
            kb_ids=list(webhook.kb_ids),
            created_at=webhook.created_at,
            rotated_at=webhook.rotated_at,
            disabled_at=webhook.disabled_at,
        )


class WebhookCreated(WebhookOut):
    secret: str = Field(description="Verifies signatures; shown this once.", examples=["whsec_MfKQ9r8GKYqrTwj"])

    @classmethod
    def with_secret(cls, webhook: Webhook, secret: str) -> "WebhookCreated":
        shown: dict[str, Any] = WebhookOut.of(webhook).model_dump()
        return cls(**shown, secret=secret)


class WebhookList(BaseModel):
    items: list[WebhookOut]


class DeliveryOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: UUID
    event_id: str
    status: DeliveryStatus
    attempts: int
    due_at: datetime = Field(description="When it is attempted next, while it is pending.")
    attempted_at: datetime | None
    response_code: int | None = Field(description="The answer to the last attempt.")
    error: str | None = Field(description="What was wrong with the last attempt.")
    created_at: datetime
    body: str = Field(description="What is sent.")


class DeliveryPage(BaseModel):
    items: list[DeliveryOut]
    next_before: UUID | None = Field(None, description="Pass as `before` for the next page; absent on the last.")


@router.post("", status_code=201, dependencies=[SmallBody], responses=responses(400, 404, 409, 413))
async def create(request: Request, response: Response, caller: Caller, body: WebhookIn) -> WebhookCreated:
    """Asks for a POST to `endpoint` whenever a document that you may see changes its state.

    Signed as Standard Webhooks says. Documents of teams count for the teams that your token names now.
    """
    gateway = gateway_of(request)
    webhook, secret = await handlers.create_webhook(
        gateway.webhooks,
        gateway.knowledge_bases,
        gateway.endpoints,
        caller,
        endpoint=body.endpoint,
        statuses=body.events,
        kb_ids=body.kb_ids,
        key=gateway.webhook_key,
        limit=gateway.webhooks_per_user,
    )
    response.headers["Location"] = f"/webhooks/{webhook.id}"
    return WebhookCreated.with_secret(webhook, secret)


@router.get("", responses=responses())
async def list_all(request: Request, caller: Caller) -> WebhookList:
    """Your webhooks, in order of creation."""
    found = await gateway_of(request).webhooks.mine(caller)
    return WebhookList(items=[WebhookOut.of(item) for item in found])


@router.get("/{webhook_id}", responses=responses(404))
async def get(request: Request, caller: Caller, webhook_id: UUID) -> WebhookOut:
    """A webhook, without its secret."""
    return WebhookOut.of(await handlers.get_webhook(gateway_of(request).webhooks, caller, webhook_id))


@router.delete("/{webhook_id}", status_code=204, responses=responses(404))
async def delete(request: Request, caller: Caller, webhook_id: UUID) -> None:
    """Deletes a webhook with its deliveries, also those that are still to be made."""
    await handlers.delete_webhook(gateway_of(request).webhooks, caller, webhook_id)


@router.post("/{webhook_id}/rotate", responses=responses(404))
async def rotate(request: Request, caller: Caller, webhook_id: UUID) -> WebhookCreated:
    """Replaces the secret. For 24 hours each delivery is signed by the new one and by the one before."""
    gateway = gateway_of(request)
    webhook, secret = await handlers.rotate_secret(gateway.webhooks, caller, webhook_id, key=gateway.webhook_key)
    return WebhookCreated.with_secret(webhook, secret)


@router.post("/{webhook_id}/enable", responses=responses(404))
async def enable(request: Request, caller: Caller, webhook_id: UUID) -> WebhookOut:
    """Takes a webhook into use again that was disabled; deliveries that had not been made are made now."""
    return WebhookOut.of(await handlers.enable_webhook(gateway_of(request).webhooks, caller, webhook_id))


@router.get("/{webhook_id}/deliveries", responses=responses(404))
async def deliveries(
    request: Request,
    caller: Caller,
    webhook_id: UUID,
    before: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> DeliveryPage:
    """What was sent, or is to be, the newest first; kept for 30 days."""
    found = await handlers.list_deliveries(
        gateway_of(request).webhooks, caller, webhook_id, before=before, limit=limit
    )
    return DeliveryPage(
        items=[DeliveryOut.model_validate(item) for item in found],
        next_before=found[-1].id if len(found) == limit else None,
    )


@router.post("/{webhook_id}/deliveries/{delivery_id}/redeliver", status_code=202, responses=responses(404, 409))
async def redeliver(request: Request, caller: Caller, webhook_id: UUID, delivery_id: UUID) -> DeliveryOut:
    """Sends a delivery again, with all its attempts before it."""
    found = await handlers.redeliver(gateway_of(request).webhooks, caller, webhook_id, delivery_id)
    return DeliveryOut.model_validate(found)
