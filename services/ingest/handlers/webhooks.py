import secrets
from collections.abc import Sequence
from uuid import UUID

from kbmesh.auth import Principal
from kbmesh.errors import Conflict, NotFound
from services.ingest.domain.webhooks import SECRET_BYTES, Delivery, EventStatus, Webhook, shown, signing_key
from services.ingest.handlers.knowledge_bases import get_knowledge_base
from services.ingest.ports import Endpoints, KnowledgeBases, Webhooks


async def create_webhook(
    webhooks: Webhooks,
    knowledge_bases: KnowledgeBases,
    endpoints: Endpoints,
    principal: Principal,
    *,
    endpoint: str,
    statuses: Sequence[EventStatus],
    kb_ids: Sequence[UUID],
    key: bytes | None,
    limit: int,
) -> tuple[Webhook, str]:
    """The webhook and its secret, which nothing shows again.

    Raises:
        InvalidArgument: the endpoint is refused.
        NotFound: no such knowledge base for the caller.
        Conflict: the caller has `limit` webhooks.
    """
    for kb_id in kb_ids:
        await get_knowledge_base(knowledge_bases, principal, kb_id)
    await endpoints.check(endpoint)
    secret = secrets.token_bytes(SECRET_BYTES)
    created = await webhooks.create(principal, endpoint, secret, statuses, kb_ids, limit=limit)
    if created is None:
        raise Conflict(f"you have {limit} webhooks; delete one first", code="too_many_webhooks")
    return created, shown(signing_key(secret, key))


async def get_webhook(webhooks: Webhooks, principal: Principal, webhook_id: UUID) -> Webhook:
    """Raises NotFound, whether it does not exist or is somebody else's."""
    found = await webhooks.find(principal, webhook_id)
    if found is None:
        raise _unknown()
    return found


async def delete_webhook(webhooks: Webhooks, principal: Principal, webhook_id: UUID) -> None:
    """Raises NotFound."""
    if not await webhooks.delete(principal, webhook_id):
        raise _unknown()


async def rotate_secret(
    webhooks: Webhooks, principal: Principal, webhook_id: UUID, *, key: bytes | None
) -> tuple[Webhook, str]:
    """The webhook and its new secret, which nothing shows again; the old one signs too for a day.

    Raises NotFound.
    """
    secret = secrets.token_bytes(SECRET_BYTES)
    rotated = await webhooks.rotate(principal, webhook_id, secret)
    if rotated is None:
        raise _unknown()
    return rotated, shown(signing_key(secret, key))


async def enable_webhook(webhooks: Webhooks, principal: Principal, webhook_id: UUID) -> Webhook:
    """Raises NotFound."""
    enabled = await webhooks.enable(principal, webhook_id)
    if enabled is None:
        raise _unknown()
    return enabled


async def list_deliveries(
    webhooks: Webhooks, principal: Principal, webhook_id: UUID, *, before: UUID | None, limit: int
) -> Sequence[Delivery]:
    """Raises NotFound."""
    await get_webhook(webhooks, principal, webhook_id)
    return await webhooks.deliveries(principal, webhook_id, before=before, limit=limit)


async def redeliver(webhooks: Webhooks, principal: Principal, webhook_id: UUID, delivery_id: UUID) -> Delivery:
    """Raises NotFound; Conflict: it is being attempted right now."""
    found = await webhooks.redeliver(principal, webhook_id, delivery_id)
    if found is None:
        raise NotFound("no such delivery", code="delivery_not_found")
    delivery, begun = found
    if not begun:
        raise Conflict("it is being attempted; try again in a minute", code="delivery_under_way")
    return delivery


def _unknown() -> NotFound:
    return NotFound("no such webhook", code="webhook_not_found")
