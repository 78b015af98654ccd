"""`make demo`: the whole of kbmesh on this machine, from an upload to a ranked answer.

Starts a stack that is thrown away at the end, uploads the documents of examples/ over HTTP, waits until they can
be searched, asks the questions of examples/manifest.yaml over gRPC, and fails unless each finds its document
first.
"""

import argparse
import asyncio
import mimetypes
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
import httpx
import structlog
import yaml
from pydantic import BaseModel
from rich.console import Console
from rich.live import Live
from rich.table import Table

from deploy.embedded.directory import DataDirectory
from deploy.embedded.stack import StackOptions, running_stack
from kbmesh.errors import KbmeshError
from kbmesh.provenance import Tier
from kbmesh.rpc import ChannelSettings, open_channel
from kbmesh.search.v1.search_pb2 import KbSearchRequest, KbSearchResponse, Passage
from kbmesh.search.v1.search_pb2_grpc import SearchServiceStub
from kbmesh.tiers import tier_from_proto

if TYPE_CHECKING:
    from kbmesh.search.v1.search_pb2_grpc import SearchServiceAsyncStub

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
READY_TIMEOUT_S: Final = 180
CALL_TIMEOUT_S: Final = 30
POLL_S: Final = 0.2
BLOCK_BYTES: Final = 64 * 1024
PASSAGES: Final = 3
EXCERPT_CHARS: Final = 96


class DemoFailed(Exception):
    """Says what went wrong, to a person."""


class Example(BaseModel):
    file: str
    category: str
    source_priority: Tier | None = None


class Question(BaseModel):
    ask: str
    document: str
    tier: Tier
    words: list[str]
    page: int | None = None


class Manifest(BaseModel):
    documents: list[Example]
    questions: list[Question]


class DocumentState(BaseModel):
    """What GET /documents/{id} answers, as far as it is shown here."""

    filename: str
    status: str
    error_detail: str | None
    chunk_count: int
    embedded_count: int

    @property
    def progress(self) -> str:
        return f"{self.embedded_count} of {self.chunk_count} chunks embedded" if self.chunk_count else ""

    def __str__(self) -> str:
        return " ".join(filter(None, [f"{self.filename}:", self.status, self.progress, self.error_detail]))


async def demo(examples: Path, data_dir: Path, console: Console) -> bool:
    """True if every question found what it should.

    Raises:
        DemoFailed, KbmeshError: something is missing, does not start, or hangs.
    """
    manifest = Manifest.model_validate(yaml.safe_load((examples / "manifest.yaml").read_text(encoding="utf-8")))
    console.print("Starting database, broker and services", style="bold")
    async with running_stack(StackOptions.throwaway(data_dir), lambda line: console.print(f"  {line}")) as stack:
        async with httpx.AsyncClient(base_url=stack.http_url, timeout=CALL_TIMEOUT_S, trust_env=False) as api:
            console.print(f"\nUploading {len(manifest.documents)} documents", style="bold")
            kb_id = await create_knowledge_base(api)
            documents = [await upload(api, kb_id, examples, example) for example in manifest.documents]
            await wait_until_ready(api, documents, console)
        async with open_channel(ChannelSettings(target=stack.search)) as channel:
            console.print(f"\nAsking {len(manifest.questions)} questions", style="bold")
            search = SearchServiceStub(channel)
            passed = [await ask(search, kb_id, question, console) for question in manifest.questions]
    console.print(
        f"\n{sum(passed)} of {len(passed)} questions found the expected document first.",
        style="bold green" if all(passed) else "bold red",
    )
    return all(passed)


async def create_knowledge_base(api: httpx.AsyncClient) -> str:
    """Returns its id."""
    created = await api.post("/knowledge-bases", json={"name": "Larkmoor Energy", "owner_type": "user"})
    return str(checked(created).json()["id"])


async def upload(api: httpx.AsyncClient, kb_id: str, examples: Path, example: Example) -> str:
    """Streams a file and returns where its state can be asked for."""
    parameters = {"filename": example.file, "category": example.category}
    if example.source_priority is not None:
        parameters["source_priority"] = example.source_priority
    accepted = await api.post(
        f"/knowledge-bases/{kb_id}/documents",
        params=parameters,
        headers={"Content-Type": mimetypes.guess_type(example.file)[0] or "application/octet-stream"},
        content=blocks(examples / example.file),
    )
    return checked(accepted).headers["Location"]


async def blocks(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while block := await asyncio.to_thread(file.read, BLOCK_BYTES):
            yield block


def checked(response: httpx.Response) -> httpx.Response:
    """The response, unless it is an error, which comes as RFC 9457 problem details."""
    if response.is_success:
        return response
    raise DemoFailed(f"{response.request.method} {response.url.path}: {response.status_code} {response.text}")


async def wait_until_ready(api: httpx.AsyncClient, documents: list[str], console: Console) -> None:
    """Shows the states of the documents until search sees all of them."""
    states: list[DocumentState] = []
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            with progress_view(console) as show:
                while not states or any(state.status != "ready" for state in states):
                    answers = [checked(await api.get(document)) for document in documents]
                    states = [DocumentState.model_validate(answer.json()) for answer in answers]
                    show(states)
                    if hopeless := [state for state in states if state.status in ("failed", "empty")]:
                        raise DemoFailed("; ".join(str(state) for state in hopeless))
                    await asyncio.sleep(POLL_S)
    except TimeoutError:
        late = "; ".join(str(state) for state in states if state.status != "ready")
        raise DemoFailed(f"not ready after {READY_TIMEOUT_S} s: {late or 'no answer'}") from None


@contextmanager
def progress_view(console: Console) -> Iterator[Callable[[list[DocumentState]], None]]:
    """A table that is drawn anew on a terminal, elsewhere a line for each change."""
    if console.is_terminal:
        with Live(console=console) as live:
            yield lambda states: live.update(state_table(states))
        return
    shown: dict[str, str] = {}

    def print_changes(states: list[DocumentState]) -> None:
        for state in states:
            if shown.get(state.filename) != state.status:
                console.print(f"  {state}")
            shown[state.filename] = state.status

    yield print_changes


def state_table(states: list[DocumentState]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2))
    for state in states:
        style = "green" if state.status == "ready" else "yellow"
        table.add_row(state.filename, state.status, state.progress, style=style)
    return table


async def ask(search: "SearchServiceAsyncStub", kb_id: str, question: Question, console: Console) -> bool:
    """Prints the passages found; True if the first is the expected one."""
    request = KbSearchRequest(query=question.ask, kb_ids=[kb_id], limit=PASSAGES)
    try:
        answer: KbSearchResponse = await search.KbSearch(request, timeout=CALL_TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        raise DemoFailed(f"KbSearch: {error.code().name} {error.details()}") from error
    wrong = shortcomings(answer, question)
    console.print(f"\n{question.ask}", style="bold")
    for rank, passage in enumerate(answer.passages, start=1):
        console.print(f"  {rank}. {describe(passage)}", style="green" if rank == 1 and not wrong else None)
        console.print(f"     {excerpt(passage, question.words)}", style="dim")
    for problem in wrong:
        console.print(f"  FAILED: {problem}", style="red")
    return not wrong


def describe(passage: Passage) -> str:
    score = passage.score
    page = f", page {passage.citation.page}" if passage.citation.HasField("page") else ""
    factors = f"{score.relevance:.3f} x {score.tier_weight:.2f} x {score.freshness:.2f}"
    return f"{score.value:.3f} = {factors}  {passage.label}{page}  {tier_from_proto(passage.tier)}"


def excerpt(passage: Passage, words: list[str]) -> str:
    """One line of the passage, around the first of `words` that it has."""
    text = " ".join(passage.content.split())
    found = next((at for word in words if (at := text.casefold().find(word.casefold())) >= 0), 0)
    start = max(0, found - EXCERPT_CHARS // 2)
    end = start + EXCERPT_CHARS
    return f"{'... ' if start else ''}{text[start:end]}{' ...' if end < len(text) else ''}"


def shortcomings(answer: KbSearchResponse, question: Question) -> list[str]:
    """What is not as the manifest wants it; empty when all is well."""
    if answer.degraded:
        return [f"search is degraded: {answer.degraded_reason}"]
    if not answer.passages:
        return ["nothing was found"]
    first = answer.passages[0]
    text = " ".join(first.content.split()).casefold()
    wrong = []
    if first.filename != question.document:
        wrong.append(f"{question.document} should come first")
    if tier_from_proto(first.tier) is not question.tier:
        wrong.append(f"the tier should be {question.tier}")
    if question.page is not None and first.citation.page != question.page:
        wrong.append(f"the page should be {question.page}")
    return wrong + [f"it should say {word!r}" for word in question.words if word.casefold() not in text]


async def run(examples: Path, data_dir: Path, console: Console) -> bool:
    running = asyncio.create_task(demo(examples, data_dir, console))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    return await running


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.embedded.demo", description=__doc__)
    parser.add_argument("--examples", type=Path, default=EXAMPLES, help="folder with documents and manifest.yaml")
    arguments = parser.parse_args()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    # Labels hold brackets, which are not markup; lines are as long as they are when they go to a file.
    console = Console(markup=False, highlight=False, soft_wrap=True)
    data_dir = Path(tempfile.mkdtemp(prefix="kbmesh-demo-"))
    started = time.monotonic()
    try:
        passed = asyncio.run(run(arguments.examples, data_dir, console))
    except asyncio.CancelledError:
        console.print("\nstopped", style="bold")
        shutil.rmtree(data_dir, ignore_errors=True)
        return 130
    except (DemoFailed, KbmeshError, httpx.HTTPError, OSError) as error:
        console.print(f"\nThe demo failed: {error or type(error).__name__}", style="bold red")
        console.print(f"Logs of the services: {DataDirectory(data_dir).log('NAME')}")
        return 1
    shutil.rmtree(data_dir, ignore_errors=True)
    console.print(f"Everything is stopped. {time.monotonic() - started:.0f} s in all.")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
