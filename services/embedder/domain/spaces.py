import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

MAX_ID_LENGTH: Final = 48


@dataclass(frozen=True, slots=True)
class Space:
    """One model at one dimension: vectors of one space can be compared, of two spaces never."""

    model: str
    dimensions: int

    @property
    def id(self) -> str:
        """For instance all_minilm_l6_v2_384; part of a table name, so [a-z0-9_] only."""
        name = self.model.rsplit("/", 1)[-1].lower()
        slug = re.sub(r"[^a-z0-9]+", "_", name).strip("_")
        if not slug or not slug[0].isalpha():
            slug = f"model_{slug}".rstrip("_")
        suffix = f"_{self.dimensions}"
        if len(slug) + len(suffix) > MAX_ID_LENGTH:
            digest = hashlib.sha256(name.encode()).hexdigest()[:8]
            slug = f"{slug[: MAX_ID_LENGTH - len(suffix) - 9]}_{digest}"
        return slug + suffix

    @property
    def table(self) -> str:
        return f"vectors_{self.id}"


class SpaceStatus(StrEnum):
    BUILDING = "building"
    ACTIVE = "active"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True)
class SpaceState:
    """An embedding space and how far it is filled."""

    space: Space
    status: SpaceStatus
    filled: int
    """Chunks that have a vector."""
    waiting: int
    failed: int
    """Chunks that its model could not encode."""
    indexed: bool
    created_at: datetime
    activated_at: datetime | None = None
    retired_at: datetime | None = None

    def eta_s(self, now: datetime) -> float | None:
        """Seconds until it is filled, at the mean speed since its creation; None unless it is being built, and as
        long as nothing is filled."""
        if self.status is not SpaceStatus.BUILDING or not self.filled:
            return None
        return self.waiting * (now - self.created_at).total_seconds() / self.filled
