from typing import Any, Final

import grpc

from kbmesh.errors import InvalidArgument
from kbmesh.skills.v1 import skills_pb2 as pb
from kbmesh.skills.v1 import skills_pb2_grpc
from services.skills import handlers
from services.skills.domain.resolver import Resolved, ResolvedChunk
from services.skills.domain.skills import ChunkCategory, Skill, SkillChunk
from services.skills.ports import SkillCatalog

SERVICE: Final = pb.DESCRIPTOR.services_by_name["SkillsService"].full_name

_CATEGORIES: Final = {
    ChunkCategory.RULES: pb.CHUNK_CATEGORY_RULES,
    ChunkCategory.PATTERNS: pb.CHUNK_CATEGORY_PATTERNS,
    ChunkCategory.ANTI_PATTERNS: pb.CHUNK_CATEGORY_ANTI_PATTERNS,
    ChunkCategory.EXAMPLES: pb.CHUNK_CATEGORY_EXAMPLES,
    ChunkCategory.VOCABULARY: pb.CHUNK_CATEGORY_VOCABULARY,
    ChunkCategory.KPIS: pb.CHUNK_CATEGORY_KPIS,
}

_RESOLVERS: Final = {
    "intent": handlers.resolve_for_intent,
    "genie_pass": handlers.resolve_for_genie_pass,
    "pipeline_step": handlers.resolve_for_pipeline_step,
}

EMBEDDING_SHARE: Final = 0.6
"""Of the time that a caller has left, so that a slow embedder costs the order by nearness alone."""

Context = grpc.aio.ServicerContext[Any, Any]


class SkillsServicer(skills_pb2_grpc.SkillsServiceServicer):
    """Without `nearness` skills come in their own order, whatever the question. `max_deadline_s` is what a call
    without a deadline of its own gets."""

    def __init__(
        self, catalog: SkillCatalog, nearness: handlers.Nearness | None, *, max_deadline_s: float
    ) -> None:
        self._catalog = catalog
        self._nearness = nearness
        self._max_deadline_s = max_deadline_s

    async def ListSkills(self, request: pb.ListSkillsRequest, context: Context) -> pb.ListSkillsResponse:
        page = handlers.list_skills(request.page_size, request.page_token, catalog=self._catalog)
        return pb.ListSkillsResponse(
            skills=[_to_proto(skill) for skill in page.skills], next_page_token=page.next_token
        )

    async def GetSkill(self, request: pb.GetSkillRequest, context: Context) -> pb.GetSkillResponse:
        return pb.GetSkillResponse(skill=_to_proto(handlers.get_skill(request.skill_id, catalog=self._catalog)))

    async def ResolveSkills(self, request: pb.ResolveSkillsRequest, context: Context) -> pb.ResolveSkillsResponse:
        kind = request.WhichOneof("target")
        if kind is None:
            raise InvalidArgument("name an intent, a Genie pass or a pipeline step", code="no_target")
        remaining_s = context.time_remaining()
        limit_s = self._max_deadline_s if remaining_s is None else min(remaining_s, self._max_deadline_s)
        ask = handlers.Ask(
            request.question,
            limit_s * EMBEDDING_SHARE,
            request.max_overlay_chars if request.HasField("max_overlay_chars") else None,
            request.max_context_chars if request.HasField("max_context_chars") else None,
        )
        resolved = await _RESOLVERS[kind](
            getattr(request, kind), ask, catalog=self._catalog, nearness=self._nearness
        )
        return _resolved_to_proto(resolved)


def register(server: grpc.aio.Server, servicer: SkillsServicer) -> None:
    skills_pb2_grpc.add_SkillsServiceServicer_to_server(servicer, server)


def _to_proto(skill: Skill) -> pb.Skill:
    return pb.Skill(
        id=skill.id,
        name=skill.name,
        description=skill.description,
        relevance=pb.Relevance(
            intents=skill.relevance.intents,
            genie_passes=skill.relevance.genie_passes,
            pipeline_steps=skill.relevance.pipeline_steps,
        ),
        chunks=[_chunk_to_proto(chunk) for chunk in skill.chunks],
    )


def _chunk_to_proto(chunk: SkillChunk) -> pb.SkillChunk:
    return pb.SkillChunk(
        id=chunk.id,
        title=chunk.title,
        content=chunk.content,
        category=_CATEGORIES[chunk.category],
        max_char_budget=chunk.max_char_budget,
    )


def _resolved_to_proto(resolved: Resolved) -> pb.ResolveSkillsResponse:
    return pb.ResolveSkillsResponse(
        system_overlay=resolved.system_overlay,
        overlay_chunks=[_section_to_proto(chunk, content="") for chunk in resolved.overlay_chunks],
        context_sections=[_section_to_proto(chunk, content=chunk.content) for chunk in resolved.context_sections],
        overlay_chars=len(resolved.system_overlay),
        context_chars=resolved.context_chars,
        left_out=[pb.ChunkReference(skill_id=left.skill, chunk_id=left.chunk) for left in resolved.left_out],
        by_relevance=resolved.by_relevance,
    )


def _section_to_proto(chunk: ResolvedChunk, *, content: str) -> pb.ResolvedChunk:
    return pb.ResolvedChunk(
        skill_id=chunk.id.skill,
        chunk_id=chunk.id.chunk,
        title=chunk.title,
        category=_CATEGORIES[chunk.category],
        content=content,
        shortened=chunk.shortened,
    )
