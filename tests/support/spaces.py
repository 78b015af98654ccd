"""Embedding spaces in memory, with models that count words."""

import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

import numpy as np

from kbmesh.auth import AuthSettings
from kbmesh.errors import Conflict, NotFound, PreconditionFailed
from kbmesh.rpc import GrpcSettings, serve
from services.embedder.domain.chunks import Found
from services.embedder.domain.encoding import Encoded, InputType, Lane, Vectors, cut
from services.embedder.domain.spaces import Space, SpaceState, SpaceStatus
from services.embedder.entrypoints.spaces_grpc import SERVICE, SpaceServicer, register

CREATED = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class WordModel:
    """Port TextEncoder: texts that share words are near one another; `blind`: all texts look the same."""

    dimensions: int = 256
    blind: bool = False
    calls: list[tuple[int, InputType, Lane]] = field(default_factory=list)

    async def encode(self, texts: Sequence[str], input_type: InputType, lane: Lane) -> Encoded:
        self.calls.append((len(texts), input_type, lane))
        return Encoded(self.vectors(texts), (1,) * len(texts), (False,) * len(texts))

    def vectors(self, texts: Sequence[str]) -> Vectors:
        vectors = np.full((len(texts), self.dimensions), 1e-6, np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word in [] if self.blind else text.lower().split():
                row[zlib.crc32(word.encode()) % self.dimensions] += 1
        unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit


class SpacesInMemory:
    """Port SpaceStore over chunks that do not change; a space that was created waits for `fill`."""

    def __init__(self, active: Space, models: Mapping[str, WordModel], chunks: Mapping[UUID, str]) -> None:
        self._models = models
        self._chunks = chunks
        self._now = CREATED
        self.probes: dict[Space, Vectors] = {}
        self._states = {
            active.id: SpaceState(
                active, SpaceStatus.ACTIVE, len(chunks), 0, 0, True, CREATED, activated_at=CREATED
            )
        }

    def fill(self, space_id: str, *, failed: int = 0) -> None:
        """Up to chunks that cannot be encoded."""
        filled = len(self._chunks) - failed
        self._states[space_id] = replace(
            self._states[space_id], filled=filled, waiting=0, failed=failed, indexed=True
        )

    async def states(self) -> list[SpaceState]:
        newest_first = sorted(self._states.values(), key=lambda state: state.created_at, reverse=True)
        return sorted(newest_first, key=lambda state: state.status is not SpaceStatus.ACTIVE)

    async def create(self, space: Space) -> SpaceState:
        if space.id in self._states:
            raise Conflict(f"the space {space.id} exists", code="space_exists")
        state = SpaceState(space, SpaceStatus.BUILDING, 0, len(self._chunks), 0, False, self._tick())
        self._states[space.id] = state
        return state

    async def activate(self, space_id: str, *, accept_failed: bool = False) -> SpaceState:
        state = self._find(space_id)
        if state.status is SpaceStatus.ACTIVE:
            return state
        if not state.indexed:
            raise PreconditionFailed(f"{space_id} is being filled", code="space_filling")
        if state.failed and not accept_failed:
            raise PreconditionFailed(f"{space_id} lacks {state.failed} chunks", code="space_incomplete")
        now = self._tick()
        for other in list(self._states.values()):
            if other.status is SpaceStatus.ACTIVE:
                self._states[other.space.id] = replace(other, status=SpaceStatus.RETIRED, retired_at=now)
        self._states[space_id] = replace(state, status=SpaceStatus.ACTIVE, activated_at=now, retired_at=None)
        return self._states[space_id]

    async def remember_probe(self, space: Space, probe: Vectors) -> Vectors:
        return self.probes.setdefault(space, probe)

    async def drop(self, space_id: str) -> SpaceState:
        if self._find(space_id).status is SpaceStatus.ACTIVE:
            raise PreconditionFailed(f"{space_id} is the active one", code="space_is_active")
        return self._states.pop(space_id)

    async def sample(self, count: int) -> list[tuple[UUID, str]]:
        return sorted(self._chunks.items())[:count]

    async def nearest(self, vectors: Vectors, space: Space, *, limit: int) -> list[list[Found]]:
        ids, texts = zip(*sorted(self._chunks.items()), strict=True)
        stored = cut(self._models[space.model].vectors(texts), space.dimensions)
        order = np.argsort(-(vectors @ stored.T), axis=1, kind="stable")[:, :limit]
        return [[Found(ids[index], f"source-{ids[index].int}") for index in row] for row in order]

    def _find(self, space_id: str) -> SpaceState:
        if space_id not in self._states:
            raise NotFound(f"there is no embedding space {space_id}", code="space_not_found")
        return self._states[space_id]

    def _tick(self) -> datetime:
        self._now += timedelta(minutes=1)
        return self._now


ACTIVE = Space("words", 256)
CHUNKS = {
    UUID(int=number): f"Topic{number} is told of in chapter{number % 7}. Nothing else is.\nMore of part{number}."
    for number in range(60)
}


def word_models() -> dict[str, WordModel]:
    """A model with which the active space was filled, another that is as good, and one that is of no use."""
    return {ACTIVE.model: WordModel(), "more-words": WordModel(512), "blind": WordModel(8, blind=True)}


@asynccontextmanager
async def serving_spaces(servicer: SpaceServicer, auth: AuthSettings) -> AsyncIterator[str]:
    """The real server with the service of operators; gives its address."""
    async with serve(GrpcSettings(), auth, partial(register, servicer=servicer), [SERVICE]) as server:
        yield f"127.0.0.1:{server.port}"
