from typing import Any, Final

import grpc

from kbmesh.embedding.v1 import embedding_pb2, embedding_pb2_grpc
from kbmesh.errors import Unavailable
from services.embedder import handlers
from services.embedder.domain.encoding import InputType
from services.embedder.ports import Models, SpaceDirectory

SERVICE: Final = embedding_pb2.DESCRIPTOR.services_by_name["EmbeddingService"].full_name


class EmbeddingServicer(embedding_pb2_grpc.EmbeddingServiceServicer):
    """Answers UNAVAILABLE until `open` was called."""

    def __init__(self) -> None:
        self._opened: tuple[SpaceDirectory, Models] | None = None

    def open(self, spaces: SpaceDirectory, models: Models) -> None:
        self._opened = spaces, models

    async def Embed(
        self, request: embedding_pb2.EmbedRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> embedding_pb2.EmbedResponse:
        if self._opened is None:
            raise Unavailable("the model is loading", code="model_loading")
        spaces, models = self._opened
        document = request.input_type == embedding_pb2.INPUT_TYPE_DOCUMENT
        space = await spaces.find(request.space_id or None)
        encoded = await handlers.embed_texts(
            request.texts, InputType.DOCUMENT if document else InputType.QUERY, space=space, models=models
        )
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
