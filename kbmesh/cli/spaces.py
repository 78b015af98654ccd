"""`kbmesh spaces`: another model or another number of dimensions, while searches and uploads go on."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from kbmesh.cli.calling import Server, connected, table
from kbmesh.cli.queries import read_queries
from kbmesh.embedding.v1 import spaces_pb2 as pb
from kbmesh.embedding.v1.spaces_pb2_grpc import SpaceServiceStub

DEFAULT_TARGET: Final = "127.0.0.1:50052"
TIMEOUT_S: Final = 120.0
"""The embedder gives up by then, too."""
WATCH_EVERY_S: Final = 2.0

_pass_server = click.make_pass_decorator(Server)
_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on one line.")
_space_id = click.argument("space_id")
_queries = click.option(
    "--queries",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=read_queries,
    help='JSON lines {"query": …, "relevant": [ids of documents or chunks]}, at most 200. Without it: first'
    " sentences of stored chunks, which their own chunk answers.",
)
_statuses = {number: name.removeprefix("SPACE_STATUS_").lower() for name, number in pb.SpaceStatus.items()}


@click.group()
@click.option(
    "--target",
    envvar="KBMESH_EMBEDDER_TARGET",
    default=DEFAULT_TARGET,
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT",
    help="gRPC address of the embedder.",
)
@click.option("--tls", is_flag=True, help="Through TLS, as when a proxy in front of the embedder ends it.")
@click.pass_context
def spaces(context: click.Context, target: str, tls: bool) -> None:
    """Embedding spaces: change the model or the dimensions of the index without a gap.

    With authentication on, the environment variable KBMESH_TOKEN holds a token with the role "admin".
    """
    context.obj = context.with_resource(connected(target, tls=tls))


@spaces.command("list")
@_json
@_pass_server
def list_(server: Server, as_json: bool) -> None:
    """What spaces there are, the active one first."""
    listed = _list(server)
    rows = [
        [
            space.space_id,
            space.model,
            str(space.dimensions),
            _statuses[space.status],
            "yes" if space.available else "no",
            f"{space.created_at.ToDatetime():%Y-%m-%d %H:%M}",
        ]
        for space in listed.spaces
    ]
    _show(listed, as_json, table(["SPACE", "MODEL", "DIMENSIONS", "STATUS", "AVAILABLE", "CREATED (UTC)"], rows))


@spaces.command()
@click.option("--watch", is_flag=True, help="Again and again, until no space is being filled for the first time.")
@_json
@_pass_server
def status(server: Server, watch: bool, as_json: bool) -> None:
    """How far each space is filled."""
    while True:
        listed = _list(server)
        if watch and not as_json:
            click.clear()
        _show(listed, as_json, _progress(listed.spaces))
        if not watch or all(space.indexed for space in listed.spaces):
            return
        time.sleep(WATCH_EVERY_S)


@spaces.command()
@click.argument("model")
@click.option("--dimensions", type=click.IntRange(min=1), default=None, help="Fewer than the model has.")
@_json
@_pass_server
def create(server: Server, model: str, dimensions: int | None, as_json: bool) -> None:
    """Begins to fill a space of MODEL, one that the embedder is configured with, in the background."""
    request = pb.CreateSpaceRequest(model=model, dimensions=dimensions or 0)
    created = server.call(_stub(server).CreateSpace, request, timeout_s=TIMEOUT_S)
    for warning in created.warnings:
        click.echo(f"warning: {warning}", err=True)
    _show(created, as_json, f"{created.space.space_id} is being filled: {created.space.waiting} chunks")


@spaces.command()
@_space_id
@_queries
@_json
@_pass_server
def check(server: Server, space_id: str, queries: Sequence[pb.JudgedQuery], as_json: bool) -> None:
    """Compares what SPACE_ID and the active space answer to the same queries."""
    request = pb.CheckSpaceRequest(space_id=space_id, queries=queries)
    checked = server.call(_stub(server).CheckSpace, request, timeout_s=TIMEOUT_S)
    _show(checked, as_json, _report(checked.report))


@spaces.command()
@_space_id
@_queries
@click.option("--force", is_flag=True, help="Although the check fails, or chunks could not be encoded.")
@_json
@_pass_server
def activate(server: Server, space_id: str, queries: Sequence[pb.JudgedQuery], force: bool, as_json: bool) -> None:
    """Checks SPACE_ID and has searches use it from now on; the space before is kept for a rollback."""
    request = pb.ActivateSpaceRequest(space_id=space_id, queries=queries, force=force)
    activated = server.call(_stub(server).ActivateSpace, request, timeout_s=TIMEOUT_S)
    _show(activated, as_json, f"{_report(activated.report)}\n{activated.space.space_id} is active")


@spaces.command()
@_json
@_pass_server
def rollback(server: Server, as_json: bool) -> None:
    """Goes back to the space that was active before."""
    back = server.call(_stub(server).RollbackSpace, pb.RollbackSpaceRequest(), timeout_s=TIMEOUT_S)
    _show(back, as_json, f"{back.space.space_id} is active")


@spaces.command()
@_space_id
@_json
@_pass_server
def drop(server: Server, space_id: str, as_json: bool) -> None:
    """Removes SPACE_ID with its vectors; not the active one."""
    request = pb.DropSpaceRequest(space_id=space_id)
    dropped = server.call(_stub(server).DropSpace, request, timeout_s=TIMEOUT_S)
    _show(dropped, as_json, f"{dropped.space.space_id} is gone, with {dropped.space.filled} vectors")


def _stub(server: Server) -> SpaceServiceStub:
    return SpaceServiceStub(server.channel)


def _list(server: Server) -> pb.ListSpacesResponse:
    return server.call(_stub(server).ListSpaces, pb.ListSpacesRequest(), timeout_s=TIMEOUT_S)


def _show(response: Message, as_json: bool, text: str) -> None:
    if as_json:
        text = MessageToJson(
            response,
            always_print_fields_with_no_presence=True,
            preserving_proto_field_name=True,
            unquote_int64_if_possible=True,
            indent=None,
        )
    click.echo(text)


def _progress(listed: Sequence[pb.Space]) -> str:
    rows = []
    for space in listed:
        total = space.filled + space.waiting
        rows.append(
            [
                space.space_id,
                _statuses[space.status],
                f"{space.filled / total:.1%}" if total else "-",
                str(space.filled),
                str(space.waiting),
                _duration(space.eta_s) if space.HasField("eta_s") else "-",
                str(space.failed),
                "yes" if space.indexed else "no",
            ]
        )
    return table(["SPACE", "STATUS", "DONE", "FILLED", "WAITING", "ETA", "FAILED", "INDEX"], rows)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def _report(report: pb.ShadowReport) -> str:
    lines = [f"queries   {report.queries}", f"overlap   {report.overlap:.3f}"]
    if report.judged:
        lines.append(
            f"recall    {report.recall_candidate:.3f}, active space {report.recall_active:.3f}"
            f" (of {report.judged} judged)"
        )
    return "\n".join(lines)
