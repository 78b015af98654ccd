from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from services.embedder.domain.chunks import PendingChunk, ReadyChunks, Source, Stored
from services.embedder.domain.encoding import Encoded, InputType, Tokens, Vectors


class Encoder(Protocol):
    """A model. Blocking, and only ever called from one thread."""

    @property
    def dimensions(self) -> int: ...

    def tokenize(self, texts: Sequence[str], input_type: InputType) -> list[Tokens]: ...

    def encode(self, tokens: Sequence[Tokens]) -> Vectors:
        """Unit vectors, one row for each, in the same order."""
        ...


class TextEncoder(Protocol):
    """Shares one model between callers that wait for an answer and work in the background."""

    @property
    def dimensions(self) -> int:
        """Raises Unavailable while the model is loading."""
        ...

    async def encode(self, texts: Sequence[str], input_type: InputType) -> Encoded:
        """For a caller that waits: goes before all background work.

        Raises:
            ResourceExhausted: too many texts are waiting already.
            Unavailable: the model is loading, or the process is stopping.
        """
        ...

    async def encode_in_background(self, texts: Sequence[str]) -> Encoded:
        """Documents; gives way to waiting callers.

        Raises:
            Unavailable: the model is loading, or the process is stopping.
        """
        ...


class VectorStore(Protocol):
    """Vectors and document progress. Each method is one transaction, safe to repeat.

    Raises Unavailable while the database does not answer.
    """

    async def pending(self, batch: Sequence[ReadyChunks]) -> list[PendingChunk]:
        """Those of `batch` that are of their source's newest revision and have no vector, nor one that may be
        reused."""
        ...

    async def store(self, batch: Sequence[ReadyChunks], chunk_ids: Sequence[UUID], vectors: Vectors) -> Stored:
        """Writes one vector for each of `chunk_ids` and advances the sources of `batch`.

        Those of its chunks that an older revision has a vector for get that one, unless it is to be computed.

        Chunks that are gone or superseded by now are left out. A source whose chunks all have vectors goes
        live, and its older revisions go, in the same transaction.
        """
        ...

    async def mark_failed(self, source: Source, *, code: str, detail: str) -> None:
        """Fails a document, unless it is gone, has a newer revision, or is ready or cancelled."""
        ...
