from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from services.embedder.domain.chunks import Found, PendingChunk, ReadyChunks, Source, Stored
from services.embedder.domain.encoding import Encoded, InputType, Lane, Tokens, Vectors
from services.embedder.domain.spaces import Space, SpaceState


class Encoder(Protocol):
    """A model. Blocking; `encode` is only ever called from one thread, `tokenize` from any."""

    @property
    def dimensions(self) -> int: ...

    def tokenize(self, texts: Sequence[str], input_type: InputType) -> list[Tokens]: ...

    def encode(self, tokens: Sequence[Tokens]) -> Vectors:
        """Unit vectors, one row for each, in the same order."""
        ...


class TextEncoder(Protocol):
    """One model, on this machine or behind an endpoint, shared by all that need vectors of it."""

    @property
    def dimensions(self) -> int:
        """Of its vectors, before they are cut to those of a space."""
        ...

    async def encode(self, texts: Sequence[str], input_type: InputType, lane: Lane) -> Encoded:
        """Unit vectors. What is longer than the model's limit is cut there.

        Raises:
            ResourceExhausted: too many texts of callers are waiting already.
            Unavailable: the endpoint does not answer, or the process is stopping.
            Exception: of any other kind, one of the texts cannot be encoded, alone or among others.
        """
        ...


Models = Mapping[str, TextEncoder]
"""The models that this process was configured with, by name."""


class SpaceDirectory(Protocol):
    async def find(self, space_id: str | None = None) -> Space:
        """The active space, or the one with that id; as of a few seconds ago.

        Raises:
            NotFound: no such space.
            Unavailable: the database does not answer.
        """
        ...

    def known(self) -> list[Space]:
        """All spaces, as of a few seconds ago."""
        ...

    def inactive(self) -> list[Space]:
        """Those that are filled from the backlog; as of a few seconds ago."""
        ...


class VectorStore(Protocol):
    """Vectors of the active space, and the progress of documents. Each method is one transaction, safe to repeat.

    Raises Unavailable while the database does not answer.
    """

    async def pending(self, batch: Sequence[ReadyChunks], space: Space) -> list[PendingChunk]:
        """Those of `batch` that are of their source's newest revision and have no vector, nor one that may be
        reused."""
        ...

    async def store(
        self, batch: Sequence[ReadyChunks], chunk_ids: Sequence[UUID], vectors: Vectors, space: Space
    ) -> Stored:
        """Writes one vector for each of `chunk_ids` and advances the sources of `batch`.

        Those of its chunks that an older revision has a vector for get that one, unless it is to be computed.

        Chunks that are gone or superseded by now are left out. A source whose chunks all have vectors goes
        live, and its older revisions go, in the same transaction.

        Raises:
            Unavailable: `space` is not the active one any more; try again with the one that is.
        """
        ...

    async def mark_failed(self, source: Source, *, code: str, detail: str) -> None:
        """Fails a document, unless it is gone, has a newer revision, or is ready or cancelled."""
        ...


class Backlog(Protocol):
    """Chunks that a space other than the active one lacks. Each method is one transaction, safe to repeat.

    Raises Unavailable while the database does not answer.
    """

    async def seed(self, space: Space) -> bool:
        """Puts a portion of the chunks that were there before the space into its backlog; True: all are."""
        ...

    async def take(self, space: Space, count: int) -> list[PendingChunk]:
        """Chunks that nobody else takes for some minutes."""
        ...

    async def fill(self, space: Space, chunk_ids: Sequence[UUID], vectors: Vectors) -> None:
        """Writes one vector for each of `chunk_ids`, as far as the chunk and the space are still there."""
        ...

    async def put_back(self, space: Space, chunk_ids: Sequence[UUID], *, failed: bool) -> None:
        """For others, or for another try; after a few failures a chunk is given up."""
        ...

    async def build_index(self, space: Space) -> bool:
        """Builds the index of a space that has been filled for the first time; False: there was nothing to do."""
        ...


class SpaceStore(Protocol):
    """The life of embedding spaces. Each method is one transaction.

    Raises Unavailable while the database does not answer.
    """

    async def states(self) -> list[SpaceState]:
        """The active one first, then the newest."""
        ...

    async def create(self, space: Space) -> SpaceState:
        """A space that is filled in the background from now on. Raises Conflict: it exists."""
        ...

    async def activate(self, space_id: str, *, accept_failed: bool = False) -> SpaceState:
        """Makes a space the active one and retires the one that was. Stores nothing new meanwhile.

        Raises:
            NotFound: no such space.
            PreconditionFailed: it is being filled for the first time (`space_filling`), or there are chunks that
                its model could not encode (`space_incomplete`) and those are not accepted.
            Unavailable: it did not catch up with new uploads in time (`space_behind`).
        """
        ...

    async def remember_probe(self, space: Space, probe: Vectors) -> Vectors:
        """Keeps the vector, of shape (1, dimensions), with which a space was begun; gives the one that is kept."""
        ...

    async def drop(self, space_id: str) -> SpaceState:
        """Removes a space with its vectors; gives what it was.

        Raises:
            NotFound: no such space.
            PreconditionFailed: it is the active one.
        """
        ...

    async def sample(self, count: int) -> list[tuple[UUID, str]]:
        """Live chunks with their contents, the same ones as long as they are there."""
        ...

    async def nearest(self, vectors: Vectors, space: Space, *, limit: int) -> list[list[Found]]:
        """For each vector the live chunks nearest to it in `space`, through its index; for operators, whatever
        knowledge base they are in."""
        ...
