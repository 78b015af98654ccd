from dataclasses import asdict
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from services.ingest.entrypoints.http.dependencies import Caller, SmallBody, Writer, gateway_of
from services.ingest.entrypoints.http.problems import responses
from services.ingest.entrypoints.http.schemas import (
    KnowledgeBaseChange,
    KnowledgeBaseDetail,
    KnowledgeBaseIn,
    KnowledgeBaseOut,
    KnowledgeBasePage,
    RemovedOut,
)
from services.ingest.handlers import knowledge_bases as handlers

router = APIRouter(prefix="/knowledge-bases", tags=["knowledge bases"])


@router.post("", status_code=201, dependencies=[SmallBody], responses=responses(403, 413))
async def create(request: Request, response: Response, caller: Writer, body: KnowledgeBaseIn) -> KnowledgeBaseOut:
    """Creates a knowledge base, for yourself or for a team that you edit for."""
    created = await handlers.create_knowledge_base(
        gateway_of(request).knowledge_bases,
        caller,
        name=body.name,
        description=body.description,
        owner_type=body.owner_type,
        owner_id=body.owner_id,
    )
    response.headers["Location"] = f"/knowledge-bases/{created.id}"
    return KnowledgeBaseOut.model_validate(created)


@router.get("", responses=responses())
async def list_all(
    request: Request,
    caller: Caller,
    after: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> KnowledgeBasePage:
    """Your own knowledge bases and those of your teams, in order of creation."""
    found = await handlers.list_knowledge_bases(
        gateway_of(request).knowledge_bases, caller, after=after, limit=limit
    )
    return KnowledgeBasePage(
        items=[KnowledgeBaseOut.model_validate(item) for item in found],
        next_after=found[-1].id if len(found) == limit else None,
    )


@router.get("/{kb_id}", responses=responses(404))
async def get(request: Request, caller: Caller, kb_id: UUID) -> KnowledgeBaseDetail:
    """A knowledge base, with the number of its documents and their size."""
    found, contents = await handlers.get_contents(gateway_of(request).knowledge_bases, caller, kb_id)
    return KnowledgeBaseDetail(**asdict(found), **asdict(contents))


@router.patch("/{kb_id}", dependencies=[SmallBody], responses=responses(403, 404, 413))
async def rename(request: Request, caller: Writer, kb_id: UUID, body: KnowledgeBaseChange) -> KnowledgeBaseOut:
    """Changes the name, the description or both."""
    renamed = await handlers.rename_knowledge_base(
        gateway_of(request).knowledge_bases, caller, kb_id, name=body.name, description=body.description
    )
    return KnowledgeBaseOut.model_validate(renamed)


@router.delete("/{kb_id}", responses=responses(403, 404))
async def delete(request: Request, caller: Writer, kb_id: UUID) -> RemovedOut:
    """Deletes a knowledge base with every document, chunk and vector in it.

    The receipt says how many that were, and what was found left when they were looked for.
    """
    gateway = gateway_of(request)
    removed = await handlers.delete_knowledge_base(gateway.knowledge_bases, gateway.store, caller, kb_id)
    return RemovedOut.of(removed)
