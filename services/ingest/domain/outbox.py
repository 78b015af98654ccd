from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OutboxRow:
    id: int
    topic: str
    key: str
    headers: Mapping[str, str]
    payload: bytes


def published(rows: Iterable[OutboxRow], acknowledged: Iterable[bool]) -> list[int]:
    """Ids of the rows that need not be sent again.

    After a row that was not acknowledged, later ones of its key are sent again too, in order, acknowledged or
    not: consumers may see an event twice, but the last one that they see of a key is its newest.
    """
    broken: set[tuple[str, str]] = set()
    done = []
    for row, ok in zip(rows, acknowledged, strict=True):
        key = (row.topic, row.key)
        if not ok:
            broken.add(key)
        elif key not in broken:
            done.append(row.id)
    return done
