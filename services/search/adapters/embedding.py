from typing import Final

import grpc

from kbmesh.embedding.v1 import embedding_pb2, embedding_pb2_grpc
from kbmesh.rpc import forwarded_metadata
from services.search.domain.retrieval import QueryVector, Space, SpaceOutdated, VectorLegSkipped

MIN_TIMEOUT_S: Final = 0.001


class GrpcQueryEmbedder:
    """Port QueryEmbedder on the EmbeddingService; `timeout_s` caps what callers allow."""

    def __init__(self, channel: grpc.aio.Channel, *, timeout_s: float) -> None:
        self._stub = embedding_pb2_grpc.EmbeddingServiceStub(channel)
        self._timeout_s = timeout_s

    async def embed(self, text: str, space: Space, *, timeout_s: float) -> QueryVector:
        request = embedding_pb2.EmbedRequest(
            texts=[text], input_type=embedding_pb2.INPUT_TYPE_QUERY, space_id=space.id
        )
        try:
            response = await self._stub.Embed(
                request,
                timeout=max(MIN_TIMEOUT_S, min(self._timeout_s, timeout_s)),
                metadata=forwarded_metadata(),
                wait_for_ready=False,
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise SpaceOutdated(
                    f"the embedding service does not encode for space {space.id!r}", code="space_mismatch"
                ) from error
            raise VectorLegSkipped(
                f"the embedding service does not answer ({error.code().name})", code="embedding_unavailable"
            ) from error
        if len(response.embeddings) != 1:
            raise VectorLegSkipped("the embedding service gave no vector", code="embedding_unavailable")
        return QueryVector(tuple(response.embeddings[0].values), response.space_id)
