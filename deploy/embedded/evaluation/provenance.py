"""Whether the right source comes first: the labelled set of examples/provenance.

Its sources are uploaded with their category and priority into one knowledge base, and every question is asked over
gRPC. Uploads cannot say until when a document holds, so that is written into the throw-away database.
"""

from collections import Counter
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

import asyncpg
import httpx
import yaml
from pydantic import AwareDatetime, BaseModel, ConfigDict, model_validator

from deploy.embedded.benchmarks.report import log, report
from deploy.embedded.evaluation import asking
from deploy.embedded.evaluation.conflicts import Conflicts
from deploy.embedded.stack import StackAddresses
from kbmesh.provenance import DOCUMENT_CHUNK, Category, Tier, default_tier
from kbmesh.rpc import ChannelSettings, open_channel

FOLDER: Final = Path(__file__).parents[3] / "examples" / "provenance"
PASSAGES: Final = 5

_EXPIRE: Final = "UPDATE chunks SET valid_until = $2 WHERE document_id = $1"


class Reason(StrEnum):
    """Why the source that is named comes first."""

    CONTRADICTION = "contradiction"
    """Sources of several tiers answer, and differ; it has the highest tier."""
    STALE = "stale"
    """Sources of one tier answer, and differ; it is the one that still holds."""
    RELEVANCE = "relevance"
    """It alone answers, whatever its tier; sources of a higher tier share words with the question."""


class Source(BaseModel):
    model_config = ConfigDict(extra="forbid")

    file: str
    category: Category
    source_priority: Tier | None = None
    valid_until: AwareDatetime | None = None
    contradicts: frozenset[str] = frozenset()
    """Sources of lower tiers that give other numbers, be it in words, for the same subject."""
    text: str

    @property
    def tier(self) -> Tier:
        return self.source_priority or default_tier(DOCUMENT_CHUNK, self.category)


class Question(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ask: str
    first: str
    because: Reason


class LabelledSet(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sources: list[Source]
    questions: list[Question]

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        files = Counter(source.file for source in self.sources)
        if twice := [file for file, count in files.items() if count > 1]:
            raise ValueError(f"there are several of {', '.join(twice)}")
        named = {question.first for question in self.questions}.union(*(one.contradicts for one in self.sources))
        if missing := named - files.keys():
            raise ValueError(f"there is no {', '.join(sorted(missing))}")
        return self


def load_labelled_set(folder: Path = FOLDER) -> LabelledSet:
    """All files of the folder as one set.

    Raises:
        ValueError: a file is not what it should be.
    """
    parts = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml"))]
    merged = {name: [item for part in parts for item in part[name]] for name in ("sources", "questions")}
    return LabelledSet.model_validate(merged)


async def evaluate(stack: StackAddresses, api: httpx.AsyncClient, labelled: LabelledSet) -> None:
    """Prints the share of questions whose first passage is of the right source, and those that fail; and how far
    `conflicts_with` can be relied on."""
    filled = await asking.fill(api, "provenance", [_file(source) for source in labelled.sources])
    await _expire(stack.postgres_dsn, filled, labelled)
    asked: Counter[Reason] = Counter()
    right: Counter[Reason] = Counter()
    conflicts = Conflicts(
        frozenset(frozenset((one.file, other)) for one in labelled.sources for other in one.contradicts)
    )
    async with open_channel(ChannelSettings(target=stack.search)) as channel:
        for question in labelled.questions:
            passages = await asking.search(channel, filled.kb_id, question.ask, PASSAGES)
            found = [filled.files[passage.document_id] for passage in passages]
            asked[question.because] += 1
            expected = question.because is Reason.CONTRADICTION
            conflicts.count(question.ask, passages, found, first=question.first if expected else None)
            if found[:1] == [question.first]:
                right[question.because] += 1
            else:
                log(f"{question.because}: {question.ask}\n  wanted {question.first}, found {', '.join(found)}")
    report("provenance_first", right.total() / asked.total(), questions=asked.total())
    for reason in Reason:
        name = "relevance_kept" if reason is Reason.RELEVANCE else f"provenance_first_{reason}"
        report(name, right[reason] / asked[reason], questions=asked[reason])
    conflicts.report()


def _file(source: Source) -> asking.File:
    priority = {} if source.source_priority is None else {"source_priority": source.source_priority}
    return asking.File(source.file, source.file, source.text, {"category": source.category, **priority})


async def _expire(dsn: str, filled: asking.Filled, labelled: LabelledSet) -> None:
    ends: dict[str, datetime | None] = {source.file: source.valid_until for source in labelled.sources}
    database = await asyncpg.connect(dsn)
    try:
        await database.executemany(_EXPIRE, [(id, ends[file]) for id, file in filled.files.items() if ends[file]])
    finally:
        await database.close()
