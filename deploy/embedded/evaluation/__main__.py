"""`make eval`: see the modules beside this one for what is measured. Figures are JSON lines on stdout."""

import argparse
import asyncio
import os
import tempfile
from pathlib import Path
from typing import Final

import httpx

from deploy.embedded.benchmarks.report import log, quiet_logs
from deploy.embedded.evaluation import provenance, retrieval
from deploy.embedded.evaluation.beir import Collection, load_collection
from deploy.embedded.stack import StackOptions, running_stack

FOLDERS: Final = "KBMESH_EVAL_DIR"
PROVENANCE: Final = "provenance"
QUICK_QUERIES: Final = 40
QUICK_OTHERS: Final = 200
TIMEOUT_S: Final = 60


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m deploy.embedded.evaluation", description=__doc__)
    parser.add_argument(
        "name",
        nargs="*",
        metavar="NAME",
        help=f"{PROVENANCE}, or a folder under {FOLDERS} in BEIR's layout; all of them if none is given",
    )
    parser.add_argument("--quick", action="store_true", help="a part of each collection: shows that it works")
    arguments = parser.parse_args()
    folders = {folder.name: folder for folder in collection_folders(os.environ.get(FOLDERS))}
    if folders and (unknown := set(arguments.name) - {PROVENANCE, *folders}):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    names = arguments.name or [PROVENANCE, *folders]
    collections = [load_collection(folders[name]) for name in names if name in folders]
    if not collections and PROVENANCE not in names:
        return
    if arguments.quick:
        collections = [collection.part(QUICK_QUERIES, QUICK_OTHERS) for collection in collections]
    quiet_logs()
    asyncio.run(evaluate(collections, with_provenance=PROVENANCE in names))


def collection_folders(parent: str | None) -> list[Path]:
    """Folders of collections, or none with a word about why."""
    folders = sorted(path.parent for path in Path(parent).glob("*/qrels.tsv")) if parent else []
    if not folders:
        log(
            f"No judged collections: {FOLDERS} names no folder that holds any. Set it to one with, for instance, "
            "scifact/corpus.jsonl.gz, queries.jsonl.gz and qrels.tsv."
        )
    return folders


async def evaluate(collections: list[Collection], *, with_provenance: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="kbmesh-eval-", ignore_cleanup_errors=True) as directory:
        async with (
            running_stack(StackOptions.throwaway(Path(directory)), log) as stack,
            httpx.AsyncClient(base_url=stack.http_url, timeout=TIMEOUT_S, trust_env=False) as api,
        ):
            if with_provenance:
                await provenance.evaluate(stack, api, provenance.load_labelled_set())
            for collection in collections:
                await retrieval.evaluate(stack, api, collection)


if __name__ == "__main__":
    main()
