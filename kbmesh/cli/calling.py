"""What the commands that call a gRPC service have in common."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar, cast

import click
import grpc
from google.protobuf.message import Message

from kbmesh.rpc import ChannelSettings, open_blocking_channel
from kbmesh.rpc.status import reason

TOKEN_VARIABLE: Final = "KBMESH_TOKEN"  # noqa: S105 - its name

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class Server:
    """A service to call, as whom the environment says."""

    def __init__(self, channel: grpc.Channel, target: str) -> None:
        self.channel = channel
        self._target = target
        token = os.environ.get(TOKEN_VARIABLE)
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    def call(
        self, method: "grpc.UnaryUnaryMultiCallable[Request, Response]", request: Request, *, timeout_s: float
    ) -> Response:
        """Raises click.ClickException: refused or not answered; the message begins with the code."""
        try:
            return method(request, timeout=timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise click.ClickException(self._sentence(error)) from None

    def _sentence(self, error: grpc.RpcError) -> str:
        call = cast("grpc.Call", error)  # all errors of a call are
        if code := reason(call):
            return f"{code.lower()}: {call.details()}"
        return f"{call.code().name.lower()}: {self._target}: {call.details()}"


@contextmanager
def connected(target: str, *, tls: bool) -> Iterator[Server]:
    with open_blocking_channel(ChannelSettings(target=target, tls=tls)) as channel:
        yield Server(channel, target)


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Lines of aligned columns."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (heads, *rows)
    )
