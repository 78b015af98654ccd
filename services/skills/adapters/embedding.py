from collections.abc import Sequence
from typing import Final

import grpc
import numpy as np

from kbmesh.embedding.v1 import embedding_pb2, embedding_pb2_grpc
from kbmesh.errors import Unavailable
from kbmesh.rpc import forwarded_metadata
from services.skills.domain.vectors import Embedded, Side, Space

MIN_TIMEOUT_S: Final = 0.001
_INPUT_TYPES: Final = {
    Side.QUESTION: embedding_pb2.INPUT_TYPE_QUERY,
    Side.CHUNK: embedding_pb2.INPUT_TYPE_DOCUMENT,
}


class GrpcEmbedder:
    """Port Embedder on the EmbeddingService, in the name of the current caller."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = embedding_pb2_grpc.EmbeddingServiceStub(channel)

    async def embed(self, texts: Sequence[str], side: Side, *, space_id: str = "", timeout_s: float) -> Embedded:
        request = embedding_pb2.EmbedRequest(texts=texts, input_type=_INPUT_TYPES[side], space_id=space_id)
        try:
            response = await self._stub.Embed(
                request,
                timeout=max(MIN_TIMEOUT_S, timeout_s),
                metadata=forwarded_metadata(),
                wait_for_ready=False,
            )
        except grpc.aio.AioRpcError as error:
            raise Unavailable(
                f"the embedding service does not answer ({error.code().name})", code="embedding_unavailable"
            ) from error
        space = Space(response.space_id, response.dimensions)
        if len(response.embeddings) != len(texts) or any(
            len(embedding.values) != space.dimensions for embedding in response.embeddings
        ):
            raise Unavailable("the embedding service gave other vectors than asked for", code="bad_vector")
        vectors = np.array([embedding.values for embedding in response.embeddings], np.float32)
        if not np.isfinite(vectors).all():
            raise Unavailable("the embedding service gave a vector that is no numbers", code="bad_vector")
        return Embedded(space, vectors)
