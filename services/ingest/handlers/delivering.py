import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog

from kbmesh.errors import InvalidArgument, Unavailable
from services.ingest.domain.webhooks import GONE, Due, headers, signing_key
from services.ingest.ports import Endpoints, Webhooks

log = structlog.get_logger(__name__)

PURGE_INTERVAL_S: Final = 3600.0
LEASE_S: Final = 60.0
"""Longer than an attempt can take, so that only one that died is made again by somebody else."""


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """`retry_s`: the pauses after failed attempts; there is one attempt more than pauses."""

    key: bytes | None
    retry_s: Sequence[float]
    in_flight: int
    poll_s: float = 1.0


class WebhookSender:
    """Sends what is due, one delivery at a time to each webhook, so that a slow endpoint holds up only itself.

    Any number may run. One that dies leaves its attempts to the others once their lease is over.
    """

    def __init__(self, webhooks: Webhooks, endpoints: Endpoints, policy: DeliveryPolicy) -> None:
        self._webhooks = webhooks
        self._endpoints = endpoints
        self._policy = policy
        self._sending: dict[UUID, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()

    def wake(self) -> None:
        self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; then finishes the attempts under way."""
        stopped = asyncio.create_task(stop.wait())
        stopped.add_done_callback(lambda _: self._wake.set())
        purged_at = float("-inf")
        try:
            while not stop.is_set():
                self._wake.clear()
                try:
                    await self._start_due()
                    if time.monotonic() - purged_at > PURGE_INTERVAL_S:
                        await self._webhooks.purge()
                        purged_at = time.monotonic()
                except Unavailable as error:
                    log.warning("webhooks_wait", code=error.code)
                    self._wake.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), self._policy.poll_s)
        finally:
            stopped.cancel()
            await asyncio.gather(stopped, *self._sending.values(), return_exceptions=True)

    async def _start_due(self) -> None:
        free = self._policy.in_flight - len(self._sending)
        if free <= 0:
            return
        for due in await self._webhooks.claim(limit=free, busy=list(self._sending), lease_s=LEASE_S):
            self._sending[due.webhook_id] = asyncio.create_task(self._attempt(due))

    async def _attempt(self, due: Due) -> None:
        try:
            code, error = await self._post(due)
            retry_s = None
            if code == GONE:
                await self._webhooks.disable(due.webhook_id)
                log.warning("webhook_disabled", webhook_id=str(due.webhook_id))
            elif error is not None and due.attempts <= len(self._policy.retry_s):
                retry_s = self._policy.retry_s[due.attempts - 1] * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
            await self._webhooks.settle(due, response_code=code, error=error, retry_s=retry_s)
            log.info("webhook_attempted", **_ids(due), response_code=code, error=error, retry_s=retry_s)
        except Unavailable as failure:
            # Here and below: it is made again when its lease is over.
            log.warning("webhook_attempt_lost", **_ids(due), error=failure.code)
        except Exception as failure:
            log.exception("webhook_attempt_lost", **_ids(due), error=type(failure).__name__)
        finally:
            del self._sending[due.webhook_id]
            self._wake.set()

    async def _post(self, due: Due) -> tuple[int | None, str | None]:
        """The answer, and what was wrong with it."""
        body = due.body.encode()
        keys = [signing_key(secret, self._policy.key) for secret in due.secrets]
        signed = headers(keys, f"msg_{due.id.hex}", int(time.time()), body)
        try:
            code = await self._endpoints.post(due.endpoint, signed, body)
        except (InvalidArgument, Unavailable) as error:
            return None, error.code
        if code == GONE:
            return code, "endpoint_gone"
        return code, None if 200 <= code < 300 else "refused_by_endpoint"


def _ids(due: Due) -> dict[str, object]:
    return {"webhook_id": str(due.webhook_id), "delivery_id": str(due.id), "attempts": due.attempts}
