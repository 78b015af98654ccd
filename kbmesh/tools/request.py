"""The arguments of `kb_search` as the search service takes them."""

from typing import Final

from kbmesh.errors import InvalidArgument
from kbmesh.search.v1 import search_pb2
from kbmesh.tools.kb_search import Filters, KbSearchArguments

_MODES: Final = {
    "hybrid": search_pb2.MODE_HYBRID,
    "vector": search_pb2.MODE_VECTOR,
    "keyword": search_pb2.MODE_KEYWORD,
}


def to_request(asked: KbSearchArguments, *, explain: bool = False) -> search_pb2.KbSearchRequest:
    """
    Raises:
        InvalidArgument: invalid_filter. A moment that the request cannot hold.
    """
    return search_pb2.KbSearchRequest(
        query=asked.query,
        kb_ids=[str(kb_id) for kb_id in asked.kb_ids],
        limit=asked.limit,
        channel_id=asked.channel_id or "",
        mode=_MODES[asked.mode],
        filters=None if asked.filters is None else _filters(asked.filters),
        min_score=asked.min_score,
        explain=explain,
    )


def _filters(filters: Filters) -> search_pb2.Filters:
    message = search_pb2.Filters(
        category=filters.category or "",
        document_ids=[str(document_id) for document_id in filters.document_ids],
        content_type=filters.content_type or "",
    )
    message.metadata.update(filters.model_dump(include={"metadata"})["metadata"])
    try:
        if filters.created_after is not None:
            message.created_after.FromDatetime(filters.created_after)
        if filters.created_before is not None:
            message.created_before.FromDatetime(filters.created_before)
    except (ValueError, OverflowError):
        raise InvalidArgument("a filter has a moment outside the years 1 to 9999", code="invalid_filter") from None
    return message
