from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import grpc

from kbmesh.errors import InvalidArgument
from kbmesh.records.v1 import records_pb2, records_pb2_grpc
from kbmesh.rpc import current_principal
from services.ingest.entrypoints.records import read_deletion, read_record, read_seal
from services.ingest.handlers.publishing import publish_records, publish_seal, require_producer
from services.ingest.ports import RecordOutbox

SERVICE: Final = records_pb2.DESCRIPTOR.services_by_name["RecordsService"].full_name

_Context = grpc.aio.ServicerContext[Any, Any]
_Event = TypeVar("_Event")
_Change = TypeVar("_Change")


class RecordsServicer(records_pb2_grpc.RecordsServiceServicer):
    def __init__(self, outbox: RecordOutbox) -> None:
        self._outbox = outbox

    async def UpsertRecords(
        self, request: records_pb2.UpsertRecordsRequest, context: _Context
    ) -> records_pb2.UpsertRecordsResponse:
        require_producer(current_principal())
        records = _read(request.records, read_record)
        return records_pb2.UpsertRecordsResponse(accepted=await publish_records(records, outbox=self._outbox))

    async def DeleteRecords(
        self, request: records_pb2.DeleteRecordsRequest, context: _Context
    ) -> records_pb2.DeleteRecordsResponse:
        require_producer(current_principal())
        deletions = _read(request.records, read_deletion)
        return records_pb2.DeleteRecordsResponse(accepted=await publish_records(deletions, outbox=self._outbox))

    async def SealGeneration(
        self, request: records_pb2.SealGenerationRequest, context: _Context
    ) -> records_pb2.SealGenerationResponse:
        require_producer(current_principal())
        await publish_seal(read_seal(request.seal), outbox=self._outbox)
        return records_pb2.SealGenerationResponse()


def register(server: grpc.aio.Server, outbox: RecordOutbox) -> None:
    records_pb2_grpc.add_RecordsServiceServicer_to_server(RecordsServicer(outbox), server)


def _read(events: Iterable[_Event], read: Callable[[_Event], _Change]) -> list[_Change]:
    """Raises InvalidArgument: as `read`; the detail begins with the place of the bad one."""
    changes = []
    for place, event in enumerate(events):
        try:
            changes.append(read(event))
        except InvalidArgument as error:
            raise InvalidArgument(f"record {place}: {error.detail}", code=error.code) from error
    return changes
