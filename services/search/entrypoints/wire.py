"""What a request asks for, as the domain has it."""

from datetime import UTC, datetime
from typing import Final

from google.protobuf import struct_pb2, timestamp_pb2

from kbmesh.errors import InvalidArgument
from kbmesh.search.v1 import search_pb2
from services.search.domain.filters import Filters, parse_filters
from services.search.domain.query import Mode

_MODES: Final = {
    search_pb2.MODE_UNSPECIFIED: Mode.HYBRID,
    search_pb2.MODE_HYBRID: Mode.HYBRID,
    search_pb2.MODE_VECTOR: Mode.VECTOR,
    search_pb2.MODE_KEYWORD: Mode.KEYWORD,
}


def mode_of(value: search_pb2.Mode.ValueType) -> Mode:
    """
    Raises:
        InvalidArgument: unknown_mode. A number that this version does not know.
    """
    try:
        return _MODES[value]
    except KeyError:
        raise InvalidArgument(f"unknown mode {value}", code="unknown_mode") from None


def filters_of(message: search_pb2.Filters) -> Filters | None:
    """
    Raises:
        InvalidArgument: invalid_filter.
    """
    return parse_filters(
        category=message.category,
        document_ids=message.document_ids,
        content_type=message.content_type,
        metadata={key: _plain(value) for key, value in message.metadata.fields.items()},
        created_after=_moment(message.created_after) if message.HasField("created_after") else None,
        created_before=_moment(message.created_before) if message.HasField("created_before") else None,
    )


def _plain(value: struct_pb2.Value) -> object:
    match value.WhichOneof("kind"):
        case "string_value":
            return value.string_value
        case "number_value":
            return value.number_value
        case "bool_value":
            return value.bool_value
        case "list_value":
            return [_plain(item) for item in value.list_value.values]
        case "struct_value":
            return {key: _plain(item) for key, item in value.struct_value.fields.items()}
        case _:
            return None


def _moment(timestamp: timestamp_pb2.Timestamp) -> datetime:
    try:
        return timestamp.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidArgument("a filter has a moment outside the years 1 to 9999", code="invalid_filter") from None
