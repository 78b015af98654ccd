import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from kbmesh.messaging.offsets import OffsetTracker


@dataclass(frozen=True, slots=True)
class Message:
    """A record as it came off the topic; `timestamp_ms` since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]

    @property
    def line(self) -> tuple[str, int, bytes | None]:
        """What it has an order with: the messages of its key, or those of its partition that have none."""
        return self.topic, self.partition, self.key

    @property
    def ids(self) -> dict[str, object]:
        """What a log line says of the message."""
        return {"topic": self.topic, "partition": self.partition, "offset": self.offset}


@dataclass(slots=True, eq=False)
class Partition:
    """What this member knows of a partition between its assignment and its loss."""

    offsets: OffsetTracker = field(default_factory=OffsetTracker)
    revoked: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """A message together with the duty to say when its effects are durable."""

    message: Message
    _partition: Partition
    _settled: asyncio.Event

    def begin(self) -> bool:
        """Ask before each try. False: another member has the partition now, leave the message to it."""
        if self._partition.revoked:
            self._partition.offsets.abandon()
            self._settled.set()
            return False
        return True

    def done(self) -> None:
        """Call once, after the transaction that holds the message's effects has committed."""
        self._partition.offsets.finished(self.message.offset)
        self._settled.set()
