import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Final

import grpc

from kbmesh.provenance import document_label
from kbmesh.rpc import current_principal
from kbmesh.search.v1 import assemble_pb2, context_pb2, search_pb2, search_pb2_grpc
from kbmesh.tiers import tier_to_proto
from services.search import handlers
from services.search.domain.passages import Answer, Citation, Passage
from services.search.domain.query import parse_query
from services.search.domain.ranking import Score
from services.search.domain.retrieval import Visibility
from services.search.entrypoints.assemble import assemble_context
from services.search.entrypoints.context import retrieve_context
from services.search.entrypoints.stream import answers
from services.search.entrypoints.wire import filters_of, mode_of
from services.search.ports import ContextStore, QueryEmbedder, RecordSource, SkillSource

SERVICE: Final = search_pb2.DESCRIPTOR.services_by_name["SearchService"].full_name


class SearchServicer(search_pb2_grpc.SearchServiceServicer):
    """`max_deadline_s` is what a call without a deadline of its own gets; without `skills` there are none."""

    def __init__(
        self,
        store: ContextStore,
        embedder: QueryEmbedder,
        *,
        records: RecordSource,
        skills: SkillSource | None,
        max_deadline_s: float,
    ) -> None:
        self._store = store
        self._records = records
        self._skills = skills
        self._embedder = embedder
        self._max_deadline_s = max_deadline_s

    async def KbSearch(
        self, request: search_pb2.KbSearchRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> search_pb2.KbSearchResponse:
        return await self._kb_search(request, self._remaining_s(context))

    async def StreamSearch(
        self,
        request_iterator: AsyncIterator[search_pb2.StreamSearchRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[search_pb2.StreamSearchResponse]:
        async def search(request: search_pb2.KbSearchRequest) -> search_pb2.KbSearchResponse:
            remaining_s = self._remaining_s(context)
            async with asyncio.timeout(remaining_s):
                return await self._kb_search(request, remaining_s)

        async with aclosing(answers(request_iterator, search)) as responses:
            async for response in responses:
                yield response

    async def _kb_search(
        self, request: search_pb2.KbSearchRequest, remaining_s: float
    ) -> search_pb2.KbSearchResponse:
        query = parse_query(
            request.query,
            request.kb_ids,
            request.limit if request.HasField("limit") else None,
            mode=mode_of(request.mode),
            min_score=request.min_score,
            channel_id=request.channel_id,
            expand=request.expand,
        )
        filters = filters_of(request.filters)
        principal = current_principal()
        answer = await handlers.kb_search(
            query,
            Visibility(principal.sub, principal.teams, query.kb_ids, filters),
            store=self._store,
            embedder=self._embedder,
            remaining_s=remaining_s,
            now=datetime.now(UTC),
        )
        return _response(answer, explain=request.explain)

    async def RetrieveContext(
        self, request: context_pb2.RetrieveContextRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> context_pb2.RetrieveContextResponse:
        return await retrieve_context(
            request, store=self._store, embedder=self._embedder, remaining_s=self._remaining_s(context)
        )

    async def AssembleContext(
        self, request: assemble_pb2.AssembleContextRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> assemble_pb2.AssembleContextResponse:
        return await assemble_context(
            request,
            store=self._store,
            records=self._records,
            skills=self._skills,
            embedder=self._embedder,
            remaining_s=self._remaining_s(context),
        )

    def _remaining_s(self, context: grpc.aio.ServicerContext[Any, Any]) -> float:
        remaining_s = context.time_remaining()
        return min(self._max_deadline_s if remaining_s is None else remaining_s, self._max_deadline_s)


def register(server: grpc.aio.Server, servicer: SearchServicer) -> None:
    search_pb2_grpc.add_SearchServiceServicer_to_server(servicer, server)


def _response(answer: Answer, *, explain: bool) -> search_pb2.KbSearchResponse:
    return search_pb2.KbSearchResponse(
        passages=[
            _passage(passage, score, _explanation(place, score) if explain else None)
            for place, (passage, score) in enumerate(answer.passages, start=1)
        ],
        degraded=bool(answer.degraded_reason),
        degraded_reason=answer.degraded_reason,
    )


def _passage(passage: Passage, score: Score, explanation: search_pb2.Explanation | None) -> search_pb2.Passage:
    return search_pb2.Passage(
        chunk_id=str(passage.chunk_id),
        document_id=str(passage.document_id),
        kb_id=str(passage.kb_id),
        filename=passage.filename,
        category=passage.category,
        content=passage.content,
        label=document_label(passage.filename),
        tier=tier_to_proto(passage.tier),
        citation=_citation(passage.citation),
        score=search_pb2.Score(
            value=score.value,
            relevance=score.relevance,
            tier_weight=score.tier_weight,
            freshness=score.freshness,
            vector_rank=score.vector_rank,
            keyword_rank=score.keyword_rank,
            reason=score.reason,
        ),
        explanation=explanation,
        duplicates=[str(chunk_id) for chunk_id in passage.duplicates],
        conflicts_with=[str(chunk_id) for chunk_id in passage.conflicts_with],
    )


def _explanation(place: int, score: Score) -> search_pb2.Explanation:
    return search_pb2.Explanation(
        rank=place, vector_similarity=score.vector_similarity, keyword_similarity=score.keyword_similarity
    )


def _citation(citation: Citation) -> search_pb2.Citation:
    return search_pb2.Citation(
        page=citation.page,
        headings=citation.headings,
        char_start=citation.char_start,
        char_end=citation.char_end,
        content_sha256=citation.content_sha256.hex(),
    )
