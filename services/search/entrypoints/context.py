from datetime import UTC, datetime

from google.protobuf import struct_pb2

from kbmesh.rpc import current_principal
from kbmesh.search.v1 import context_pb2
from kbmesh.tiers import tier_to_proto
from services.search import handlers
from services.search.domain.context import (
    DEFAULT_MAX_CHARS,
    DEFAULT_MIN_SCORE,
    DEFAULT_TOP_K,
    ContextAnswer,
    ContextPassage,
    ContextQuery,
    Reach,
    parse_context_query,
)
from services.search.domain.ranking import Score
from services.search.ports import ContextStore, QueryEmbedder


async def retrieve_context(
    request: context_pb2.RetrieveContextRequest,
    *,
    store: ContextStore,
    embedder: QueryEmbedder,
    remaining_s: float,
) -> context_pb2.RetrieveContextResponse:
    query = _query(request)
    principal = current_principal()
    answer = await handlers.retrieve_context(
        query,
        Reach(principal.sub, principal.teams, kinds=query.kinds, attributes=query.attributes),
        store=store,
        embedder=embedder,
        remaining_s=remaining_s,
        now=datetime.now(UTC),
    )
    return _response(answer)


def _query(request: context_pb2.RetrieveContextRequest) -> ContextQuery:
    return parse_context_query(
        request.query,
        scopes=request.scopes,
        kinds=request.kinds,
        metadata=_values(request.metadata_filter),
        run_id=request.run_id if request.HasField("run_id") else None,
        scan_id=request.scan_id if request.HasField("scan_id") else None,
        top_k=request.top_k if request.HasField("top_k") else DEFAULT_TOP_K,
        min_score=request.min_score if request.HasField("min_score") else DEFAULT_MIN_SCORE,
        by_provenance=request.enforce_source_priority or not request.HasField("enforce_source_priority"),
        max_chars=request.max_chars if request.HasField("max_chars") else DEFAULT_MAX_CHARS,
    )


def _values(struct: struct_pb2.Struct) -> dict[str, object]:
    """None for a null, and for what has no value at all, which a JSON reader would stumble over."""
    found: dict[str, object] = {}
    for key, value in struct.fields.items():
        kind = value.WhichOneof("kind")
        found[key] = None if kind in (None, "null_value") else getattr(value, str(kind))
    return found


def _response(answer: ContextAnswer) -> context_pb2.RetrieveContextResponse:
    return context_pb2.RetrieveContextResponse(
        passages=[_passage(passage, score) for passage, score in answer.passages],
        formatted=answer.formatted.text,
        dropped=answer.formatted.dropped,
        shortened=answer.formatted.shortened,
        degraded=bool(answer.degraded_reason),
        degraded_reason=answer.degraded_reason,
    )


def _passage(passage: ContextPassage, score: Score) -> context_pb2.ContextPassage:
    return context_pb2.ContextPassage(
        chunk_id=str(passage.chunk_id),
        kind=passage.kind,
        source_id=passage.source_id,
        title=passage.title,
        content=passage.content,
        label=passage.label,
        tier=tier_to_proto(passage.tier),
        kb_id="" if passage.kb_id is None else str(passage.kb_id),
        page=passage.page,
        headings=passage.headings,
        score=score.value,
        reason=score.reason,
        duplicates=[str(chunk_id) for chunk_id in passage.duplicates],
        conflicts_with=[str(chunk_id) for chunk_id in passage.conflicts_with],
    )
