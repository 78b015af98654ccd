from collections.abc import Iterable
from typing import Final

import grpc

from kbmesh.rpc import forwarded_metadata
from kbmesh.rpc.status import to_error
from kbmesh.skills.v1 import skills_pb2, skills_pb2_grpc
from services.search.domain.assembly import ResolvedSkills, SkillPart

MIN_TIMEOUT_S: Final = 0.001


class GrpcSkills:
    """Port SkillSource on the SkillsService; `timeout_s` caps what callers allow."""

    def __init__(self, channel: grpc.aio.Channel, *, timeout_s: float) -> None:
        self._stub = skills_pb2_grpc.SkillsServiceStub(channel)
        self._timeout_s = timeout_s

    async def resolve(
        self, intent: str, question: str, *, max_overlay_chars: int, max_context_chars: int, timeout_s: float
    ) -> ResolvedSkills:
        request = skills_pb2.ResolveSkillsRequest(
            intent=intent,
            question=question,
            max_overlay_chars=max_overlay_chars,
            max_context_chars=max_context_chars,
        )
        try:
            response = await self._stub.ResolveSkills(
                request,
                timeout=max(MIN_TIMEOUT_S, min(self._timeout_s, timeout_s)),
                metadata=forwarded_metadata(),
                wait_for_ready=False,
            )
        except grpc.aio.AioRpcError as error:
            raise to_error(error, "skills") from error
        return ResolvedSkills(
            response.system_overlay,
            _parts(response.overlay_chunks),
            _parts(response.context_sections),
            tuple(SkillPart(one.skill_id, one.chunk_id) for one in response.left_out),
        )


def _parts(chunks: Iterable[skills_pb2.ResolvedChunk]) -> tuple[SkillPart, ...]:
    return tuple(
        SkillPart(chunk.skill_id, chunk.chunk_id, chunk.title, chunk.content, chunk.shortened) for chunk in chunks
    )
