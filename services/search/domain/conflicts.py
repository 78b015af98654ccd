"""Finds passages of different tiers that give different numbers for the same subject."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Final, TypeVar

from kbmesh.provenance import DOCUMENT_CHUNK
from services.search.domain.context import ContextPassage
from services.search.domain.figures import Statement, statements_of, stems
from services.search.domain.passages import Passage
from services.search.domain.ranking import Score

SAME_SUBJECT: Final = 0.25
"""Dice coefficient of the words around two figures, weighted by how few of the passages have each. On
examples/provenance 0.25 flags no pair that does not contradict, 0.2 and less do."""
EQUAL: Final = 0.02
"""A relative difference up to this is rounding."""
MOST_TIMES: Final = 20
"""What is further apart measures two things: eight hours are no other figure for 37 days."""
MAX_READ: Final = 50
"""Statements of one passage that are looked at, far more than texts have: a passage of numbers costs no more."""
MAX_STATEMENTS: Final = 4
"""Of one kind in one passage: the nearest to the question."""

P = TypeVar("P", Passage, ContextPassage)


def flag_conflicts(
    ranked: Sequence[tuple[P, Score]], question: str, *, by_provenance: bool = True
) -> tuple[tuple[P, Score], ...]:
    """`ranked` with `conflicts_with` filled, both ways. `by_provenance`: of two that conflict, the one of the
    higher tier stands before the other."""
    conflicts = _conflicts([passage for passage, _ in ranked], question)
    order = _trusted_first(ranked, conflicts) if by_provenance else range(len(ranked))
    ids = [passage.chunk_id for passage, _ in ranked]
    return tuple(
        (replace(passage, conflicts_with=tuple(ids[other] for other in sorted(conflicts[place]))), score)
        for place in order
        for passage, score in (ranked[place],)
    )


@dataclass(frozen=True, slots=True)
class _Said:
    """A statement with the words of its sentence and heading, and their weight."""

    statement: Statement
    words: frozenset[str]
    weight: float


def _conflicts(passages: Sequence[Passage | ContextPassage], question: str) -> list[set[int]]:
    """Places of the passages that each is in conflict with."""
    found: list[set[int]] = [set() for _ in passages]
    if len({passage.tier for passage in passages}) < 2:
        return found
    weights = _weights(passages)
    asked = stems(question)
    said = [_said(passage, asked, weights) for passage in passages]
    for one, other in combinations(range(len(passages)), 2):
        if passages[one].tier is not passages[other].tier and any(
            _differ(these, those, weights)
            for kind in said[one].keys() & said[other].keys()
            for these, those in [(said[one][kind], said[other][kind])]
        ):
            found[one].add(other)
            found[other].add(one)
    return found


def _weights(passages: Sequence[Passage | ContextPassage]) -> dict[str, float]:
    holding = Counter(stem for passage in passages for stem in stems(f"{_about(passage)} {passage.content}"))
    return {stem: math.log(1 + len(passages) / count) for stem, count in holding.items()}


def _about(passage: Passage | ContextPassage) -> str:
    """What the sentences of the passage need not say again."""
    if isinstance(passage, Passage):
        return " ".join(passage.citation.headings[-1:])
    return " ".join([*passage.headings[-1:], passage.title if passage.kind != DOCUMENT_CHUNK else ""])


def _said(
    passage: Passage | ContextPassage, asked: frozenset[str], weights: Mapping[str, float]
) -> dict[str, list[_Said]]:
    """By kind, what has most to do with the question; nothing where it has nothing."""
    about = stems(_about(passage))
    found: dict[str, list[tuple[float, _Said]]] = {}
    for statement in islice(statements_of(passage.content), MAX_READ):
        words = statement.words | about
        near = _weight(words & asked, weights)
        if near > 0:
            found.setdefault(statement.kind, []).append((near, _Said(statement, words, _weight(words, weights))))
    return {
        kind: [one for near, one in those if math.isclose(near, nearest)][:MAX_STATEMENTS]
        for kind, those in found.items()
        for nearest in [max(near for near, _ in those)]
    }


def _weight(words: frozenset[str], weights: Mapping[str, float]) -> float:
    return math.fsum(weights[word] for word in words)


def _differ(these: Sequence[_Said], those: Sequence[_Said], weights: Mapping[str, float]) -> bool:
    pairs = [(one, other) for one in these for other in those]
    if any(
        math.isclose(value, another, rel_tol=EQUAL)
        for one, other in pairs
        for value in one.statement.values
        for another in other.statement.values
    ):
        return False
    return any(_same_subject(one, other, weights) for one, other in pairs)


def _same_subject(one: _Said, other: _Said, weights: Mapping[str, float]) -> bool:
    if one.statement.years and other.statement.years and not one.statement.years & other.statement.years:
        return False
    values = (*one.statement.values, *other.statement.values)
    shared = _weight(one.words & other.words, weights)
    return max(values) <= MOST_TIMES * min(values) and 2 * shared >= SAME_SUBJECT * (one.weight + other.weight)


def _trusted_first(ranked: Sequence[tuple[P, Score]], conflicts: Sequence[set[int]]) -> Iterator[int]:
    """Places in the order of `ranked`, but those of a higher tier just ahead of the first that conflicts."""
    placed: set[int] = set()

    def place(number: int) -> Iterator[int]:
        if number not in placed:
            placed.add(number)
            for other in sorted(conflicts[number]):
                if ranked[other][0].tier.weight > ranked[number][0].tier.weight:
                    yield from place(other)
            yield number

    for number in range(len(ranked)):
        yield from place(number)
