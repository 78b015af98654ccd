"""Keeps the parts of the stack running, and shows on the console what their logs complain of."""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import Any, Final

import structlog

from deploy.embedded.process import Part
from kbmesh.errors import KbmeshError

log = structlog.get_logger(__name__)

POLL_S: Final = 0.25
BACKOFF_MIN_S: Final = 0.5
BACKOFF_MAX_S: Final = 30.0
STABLE_S: Final = 60.0
SURFACED: Final = ("warning", "error", "critical")
RENDERED: Final = ("event", "exception", "level", "logger", "service", "timestamp")


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """`asyncio.to_thread` that waits for the thread when it is cancelled: the thread would go on starting
    something that is about to be stopped."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


async def keep_running(part: Part) -> None:
    """Restart `part` whenever it dies, later each time, until cancelled."""
    backoff_s = BACKOFF_MIN_S
    while True:
        started = time.monotonic()
        while part.running:  # noqa: ASYNC110  # the end of a process sets no event
            await asyncio.sleep(POLL_S)
        if time.monotonic() - started > STABLE_S:
            backoff_s = BACKOFF_MIN_S
        log.error(
            "part_died",
            part=part.name,
            exit_code=part.exit_code,
            restart_in_s=backoff_s,
            log=str(part.log_file),
        )
        await asyncio.sleep(backoff_s)
        backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
        try:
            await in_thread(part.restart)
        except KbmeshError as error:
            log.error("part_not_restarted", part=part.name, reason=error.detail)
        else:
            log.warning("part_restarted", part=part.name)


async def surface_log(part: Part) -> None:
    """Pass on the warnings and errors that `part` writes to its log, until cancelled."""
    offset = part.log_file.stat().st_size if part.log_file.exists() else 0
    rest = b""
    while True:
        if part.log_file.exists():
            with part.log_file.open("rb") as file:
                file.seek(offset)
                written = file.read()
            offset += len(written)
            *lines, rest = (rest + written).split(b"\n")
            for line in lines:
                _surface(part.name, line)
        await asyncio.sleep(POLL_S)


def _surface(name: str, line: bytes) -> None:
    try:
        event = json.loads(line)
    except ValueError:
        return
    if isinstance(event, dict) and event.get("level") in SURFACED:
        level = logging.getLevelNamesMapping()[event["level"].upper()]
        details = {key: value for key, value in event.items() if key not in RENDERED}
        log.log(level, f"{name}: {event.get('event')}", **details)
