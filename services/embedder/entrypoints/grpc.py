from typing import Any, Final

import grpc

from kbmesh.embedding.v1 import embedding_pb2, embedding_pb2_grpc
from services.embedder import handlers
from services.embedder.domain.encoding import InputType
from services.embedder.domain.spaces import Space
from services.embedder.ports import TextEncoder

SERVICE: Final = embedding_pb2.DESCRIPTOR.services_by_name["EmbeddingService"].full_name


class EmbeddingServicer(embedding_pb2_grpc.EmbeddingServiceServicer):
    def __init__(self, encoder: TextEncoder, *, model: str) -> None:
        self._encoder = encoder
        self._model = model

    async def Embed(
        self, request: embedding_pb2.EmbedRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> embedding_pb2.EmbedResponse:
        document = request.input_type == embedding_pb2.INPUT_TYPE_DOCUMENT
        encoded = await handlers.embed_texts(
            request.texts, InputType.DOCUMENT if document else InputType.QUERY, encoder=self._encoder
        )
        space = Space(self._model, encoded.vectors.shape[1])
        return embedding_pb2.EmbedResponse(
            embeddings=[
                embedding_pb2.Embedding(values=vector, token_count=count, truncated=truncated)
                for vector, count, truncated in zip(
                    encoded.vectors.tolist(), encoded.token_counts, encoded.truncated, strict=True
                )
            ],
            space_id=space.id,
            model=space.model,
            dimensions=space.dimensions,
        )


def register(server: grpc.aio.Server, servicer: EmbeddingServicer) -> None:
    embedding_pb2_grpc.add_EmbeddingServiceServicer_to_server(servicer, server)
