from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message

from kbmesh.rpc import metadata_for
from kbmesh.rpc.status import to_error
from kbmesh.search.v1 import assemble_pb2, context_pb2, search_pb2, search_pb2_grpc
from kbmesh.tiers import tier_from_proto
from kbmesh.tools import KbSearchArguments
from kbmesh.tools.request import to_request
from services.ingest.domain.search import (
    Citation,
    Explanation,
    Passage,
    Score,
    SearchAnswer,
)


class GrpcSearch:
    """Port Search on the SearchService."""

    def __init__(self, channel: grpc.aio.Channel, *, timeout_s: float) -> None:
        self._stub = search_pb2_grpc.SearchServiceStub(channel)
        self._timeout_s = timeout_s

    async def kb_search(
        self, authorization: str | None, asked: KbSearchArguments, *, explain: bool
    ) -> SearchAnswer:
        response = await self._call(self._stub.KbSearch, authorization, to_request(asked, explain=explain))
        return SearchAnswer(tuple(map(_passage, response.passages)), response.degraded, response.degraded_reason)

    async def retrieve_context(self, authorization: str | None, question: Mapping[str, Any]) -> Mapping[str, Any]:
        request = json_format.ParseDict(dict(question), context_pb2.RetrieveContextRequest())
        return _as_json(await self._call(self._stub.RetrieveContext, authorization, request))

    async def assemble_context(self, authorization: str | None, question: Mapping[str, Any]) -> Mapping[str, Any]:
        request = json_format.ParseDict(dict(question), assemble_pb2.AssembleContextRequest())
        return _as_json(await self._call(self._stub.AssembleContext, authorization, request))

    async def _call(self, method: Any, authorization: str | None, request: Message) -> Any:
        try:
            return await method(
                request, timeout=self._timeout_s, metadata=metadata_for(authorization), wait_for_ready=False
            )
        except grpc.aio.AioRpcError as error:
            raise to_error(error, "search") from error


def _as_json(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _passage(passage: search_pb2.Passage) -> Passage:
    citation, score = passage.citation, passage.score
    return Passage(
        chunk_id=passage.chunk_id,
        document_id=passage.document_id,
        kb_id=passage.kb_id,
        filename=passage.filename,
        category=passage.category,
        content=passage.content,
        label=passage.label,
        tier=tier_from_proto(passage.tier),
        citation=Citation(
            page=citation.page if citation.HasField("page") else None,
            headings=tuple(citation.headings),
            char_start=citation.char_start,
            char_end=citation.char_end,
            content_sha256=citation.content_sha256,
        ),
        score=Score(
            value=score.value,
            relevance=score.relevance,
            tier_weight=score.tier_weight,
            freshness=score.freshness,
            vector_rank=score.vector_rank if score.HasField("vector_rank") else None,
            keyword_rank=score.keyword_rank if score.HasField("keyword_rank") else None,
            reason=score.reason,
        ),
        explanation=_explanation(passage.explanation) if passage.HasField("explanation") else None,
        duplicates=tuple(passage.duplicates),
        conflicts_with=tuple(passage.conflicts_with),
    )


def _explanation(explanation: search_pb2.Explanation) -> Explanation:
    return Explanation(
        rank=explanation.rank,
        vector_similarity=explanation.vector_similarity if explanation.HasField("vector_similarity") else None,
        keyword_similarity=explanation.keyword_similarity if explanation.HasField("keyword_similarity") else None,
    )
