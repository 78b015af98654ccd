from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from kbmesh.auth import Principal
from kbmesh.embedding.v1 import spaces_pb2, spaces_pb2_grpc
from kbmesh.errors import PermissionDenied, Unavailable
from kbmesh.rpc import current_principal
from services.embedder.domain.shadow import JudgedQuery, ShadowReport
from services.embedder.domain.spaces import SpaceState, SpaceStatus
from services.embedder.handlers import spaces
from services.embedder.ports import Models, SpaceStore

SERVICE: Final = spaces_pb2.DESCRIPTOR.services_by_name["SpaceService"].full_name
ADMIN: Final = "admin"

_Context = grpc.aio.ServicerContext[Any, Any]
_STATUSES: Final = {
    SpaceStatus.BUILDING: spaces_pb2.SPACE_STATUS_BUILDING,
    SpaceStatus.ACTIVE: spaces_pb2.SPACE_STATUS_ACTIVE,
    SpaceStatus.RETIRED: spaces_pb2.SPACE_STATUS_RETIRED,
}


class SpaceServicer(spaces_pb2_grpc.SpaceServiceServicer):
    """For callers with the role `admin`. Answers UNAVAILABLE until `open` was called."""

    def __init__(self) -> None:
        self._parts: _Parts | None = None

    def open(self, store: SpaceStore, models: Models) -> None:
        self._parts = _Parts(store, models)

    async def ListSpaces(
        self, request: spaces_pb2.ListSpacesRequest, context: _Context
    ) -> spaces_pb2.ListSpacesResponse:
        parts = self._for(current_principal())
        return spaces_pb2.ListSpacesResponse(spaces=map(parts.space, await parts.store.states()))

    async def CreateSpace(
        self, request: spaces_pb2.CreateSpaceRequest, context: _Context
    ) -> spaces_pb2.CreateSpaceResponse:
        parts = self._for(current_principal())
        state, warnings = await spaces.create_space(
            request.model, request.dimensions, store=parts.store, models=parts.models
        )
        return spaces_pb2.CreateSpaceResponse(space=parts.space(state), warnings=warnings)

    async def CheckSpace(
        self, request: spaces_pb2.CheckSpaceRequest, context: _Context
    ) -> spaces_pb2.CheckSpaceResponse:
        parts = self._for(current_principal())
        report = await spaces.check_space(
            request.space_id, _judged(request.queries), store=parts.store, models=parts.models
        )
        return spaces_pb2.CheckSpaceResponse(report=_report(report))

    async def ActivateSpace(
        self, request: spaces_pb2.ActivateSpaceRequest, context: _Context
    ) -> spaces_pb2.ActivateSpaceResponse:
        parts = self._for(current_principal())
        state, report = await spaces.activate_space(
            request.space_id,
            _judged(request.queries),
            force=request.force,
            store=parts.store,
            models=parts.models,
        )
        return spaces_pb2.ActivateSpaceResponse(space=parts.space(state), report=_report(report))

    async def RollbackSpace(
        self, request: spaces_pb2.RollbackSpaceRequest, context: _Context
    ) -> spaces_pb2.RollbackSpaceResponse:
        parts = self._for(current_principal())
        state = await spaces.rollback_space(store=parts.store, models=parts.models)
        return spaces_pb2.RollbackSpaceResponse(space=parts.space(state))

    async def DropSpace(
        self, request: spaces_pb2.DropSpaceRequest, context: _Context
    ) -> spaces_pb2.DropSpaceResponse:
        parts = self._for(current_principal())
        return spaces_pb2.DropSpaceResponse(space=parts.space(await parts.store.drop(request.space_id)))

    def _for(self, principal: Principal) -> "_Parts":
        if ADMIN not in principal.roles:
            raise PermissionDenied(f"embedding spaces take the role {ADMIN}", code="not_an_admin")
        if self._parts is None:
            raise Unavailable("the model is loading", code="model_loading")
        return self._parts


@dataclass(frozen=True, slots=True)
class _Parts:
    store: SpaceStore
    models: Models

    def space(self, state: SpaceState) -> spaces_pb2.Space:
        return spaces_pb2.Space(
            space_id=state.space.id,
            model=state.space.model,
            dimensions=state.space.dimensions,
            status=_STATUSES[state.status],
            filled=state.filled,
            waiting=state.waiting,
            failed=state.failed,
            indexed=state.indexed,
            eta_s=state.eta_s(datetime.now(UTC)),
            created_at=_timestamp(state.created_at),
            activated_at=_timestamp(state.activated_at),
            retired_at=_timestamp(state.retired_at),
            available=spaces.has_model(state.space, self.models),
        )


def register(server: grpc.aio.Server, servicer: SpaceServicer) -> None:
    spaces_pb2_grpc.add_SpaceServiceServicer_to_server(servicer, server)


def _judged(queries: Iterable[spaces_pb2.JudgedQuery]) -> list[JudgedQuery]:
    return [JudgedQuery(judged.query, frozenset(judged.relevant)) for judged in queries]


def _report(report: ShadowReport) -> spaces_pb2.ShadowReport:
    return spaces_pb2.ShadowReport(
        queries=report.queries,
        overlap=report.overlap,
        judged=report.judged,
        recall_active=report.recall_active,
        recall_candidate=report.recall_candidate,
    )


def _timestamp(at: datetime | None) -> Timestamp | None:
    if at is None:
        return None
    timestamp = Timestamp()
    timestamp.FromDatetime(at)
    return timestamp
