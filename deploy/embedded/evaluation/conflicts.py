"""Whether passages are said to contradict one another that do."""

from collections.abc import Sequence
from dataclasses import dataclass

from deploy.embedded.benchmarks.report import log, report
from kbmesh.search.v1 import search_pb2


@dataclass(slots=True)
class Conflicts:
    """`labelled`: pairs of sources that contradict one another."""

    labelled: frozenset[frozenset[str]]
    flagged: int = 0
    rightly: int = 0
    asked_about: int = 0
    found: int = 0

    def count(
        self, question: str, passages: Sequence[search_pb2.Passage], sources: Sequence[str], *, first: str | None
    ) -> None:
        """`sources` of the passages; `first`: the right one for a question about a contradiction."""
        source_of = {passage.chunk_id: source for passage, source in zip(passages, sources, strict=True)}
        flagged = {
            frozenset((source_of[passage.chunk_id], source_of[other]))
            for passage in passages
            for other in passage.conflicts_with
        }
        about = {frozenset((first, source)) for source in sources} & self.labelled if first in sources else set()
        self.flagged += len(flagged)
        self.rightly += len(flagged & self.labelled)
        self.asked_about += len(about)
        self.found += len(flagged & about)
        for pair in sorted(map(sorted, flagged - self.labelled)):
            log(f"no contradiction: {question}\n  {' and '.join(pair)}")

    def report(self) -> None:
        """The share of the flags that are right, and of the contradictions asked about that are flagged."""
        if self.flagged:
            report("conflicts_right", self.rightly / self.flagged, flags=self.flagged)
        if self.asked_about:
            report("conflicts_found", self.found / self.asked_about, contradictions=self.asked_about)
