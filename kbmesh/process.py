"""The life of a service process: one loop, stopped by a signal, with exit codes that a supervisor can act on."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NoReturn

import structlog
from pydantic import ValidationError

from kbmesh.errors import KbmeshError, Misconfigured
from kbmesh.observability import configure_logging

log = structlog.get_logger(__name__)

EXIT_FAILED: Final = 1
EXIT_MISCONFIGURED: Final = 2


def run(
    service: str,
    load_settings: Callable[[], Any],
    bootstrap: Callable[[Any], AbstractAsyncContextManager[object]],
) -> NoReturn:
    """Keeps `bootstrap(settings)` open until SIGTERM or SIGINT, then exits.

    Exit codes: 0 after a signal, 1 after a failure (a restart may help), 2 for settings that do not hold.
    """
    try:
        settings = load_settings()
    except ValidationError as error:
        configure_logging(service)
        problems = [f"{'__'.join(map(str, item['loc'])).upper()}: {item['msg']}" for item in error.errors()]
        log.error("settings_invalid", problems=problems)
        sys.exit(EXIT_MISCONFIGURED)
    configure_logging(service, settings.log_level)
    # The settings hold them now; a child process that reads strangers' files need not have them.
    for name in [name for name in os.environ if name.startswith("KBMESH_")]:
        del os.environ[name]
    try:
        asyncio.run(_until_signalled(bootstrap(settings)))
    except KbmeshError as error:
        log.error("service_failed", code=error.code, detail=error.detail)
        sys.exit(EXIT_MISCONFIGURED if isinstance(error, Misconfigured) else EXIT_FAILED)
    except Exception:
        log.exception("service_failed", code="internal")
        sys.exit(EXIT_FAILED)
    log.info("service_stopped")
    sys.exit(0)


async def _until_signalled(running: AbstractAsyncContextManager[object]) -> None:
    stop = asyncio.Event()
    started = False
    opening = asyncio.current_task()
    assert opening is not None  # noqa: S101 - asyncio.run made it

    def on_signal() -> None:
        # A start may take long, and is given up at once.
        if not (stop.is_set() or started):
            opening.cancel()
        stop.set()

    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, on_signal)
    try:
        async with running:
            started = True
            await stop.wait()
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
