"""`python -m deploy.embedded up` runs everything on this machine until Ctrl-C; `down` stops it from elsewhere."""

import argparse
import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

import structlog

from deploy.embedded.directory import DataDirectory
from deploy.embedded.stack import StackAddresses, StackOptions, running_stack
from kbmesh.errors import KbmeshError, Misconfigured

DOWN_TIMEOUT_S: Final = 90.0


def main() -> int:
    arguments = _parse()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    if arguments.command == "down":
        return _down(DataDirectory(arguments.data_dir.resolve()))
    options = vars(arguments)
    del options["command"]
    try:
        return asyncio.run(_up(StackOptions(**options)))
    except Misconfigured as error:
        print(f"cannot start: {error.detail}", file=sys.stderr)
        return 2
    except KbmeshError as error:
        print(f"cannot start: {error.detail}", file=sys.stderr)
        return 1


async def _up(options: StackOptions) -> int:
    running = asyncio.create_task(_serve(options))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, running)
    try:
        await running
    except asyncio.CancelledError:
        print("stopped")
    return 0


async def _serve(options: StackOptions) -> None:
    async with running_stack(options, lambda line: print(f"  {line}", flush=True)) as addresses:
        print(_summary(addresses), flush=True)
        await asyncio.Event().wait()


def _stop(running: asyncio.Task[None]) -> None:
    if not running.cancelling():
        print("\nstopping ...", flush=True)
        running.cancel()


def _summary(addresses: StackAddresses) -> str:
    return f"""
kbmesh is ready.

  HTTP API   {addresses.http_url}        (documentation at /docs)
  search     {addresses.search}     gRPC
  skills     {addresses.skills}     gRPC
  embedder   {addresses.embedder}     gRPC
             {addresses.embeddings_url}     OpenAI's embeddings
  records    {addresses.records}     gRPC
  Kafka      {addresses.kafka}
  database   {addresses.postgres_dsn}
  data       {addresses.data_dir} (logs in {addresses.data_dir / "logs"})

Stop it with Ctrl-C; the data stays.
"""


def _down(directory: DataDirectory) -> int:
    pid = directory.holder()
    if pid is None:
        print(f"nothing runs in {directory.root}")
        return 0
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + DOWN_TIMEOUT_S
    while directory.holder() is not None:
        if time.monotonic() > deadline:
            print(f"process {pid} has not stopped after {DOWN_TIMEOUT_S:.0f} s", file=sys.stderr)
            return 1
        time.sleep(0.1)
    print(f"stopped process {pid}")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m deploy.embedded", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start everything and run until Ctrl-C")
    down = commands.add_parser("down", help="stop the stack that runs in the data directory")
    for command in (up, down):
        command.add_argument(
            "--data-dir", type=Path, default=Path(".kbmesh"), help="holds everything (default: .kbmesh)"
        )
    defaults = StackOptions(data_dir=Path())
    for flag, port in defaults.ports.items():
        up.add_argument(flag, type=int, default=port, metavar="PORT", help=f"default: {port}")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
