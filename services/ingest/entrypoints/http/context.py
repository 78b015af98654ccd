"""Context for prompts as JSON: passages of every kind of source, alone or with records and skills."""

from typing import Annotated, Any, Final, Literal
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool

from kbmesh.common.v1 import tier_pb2
from kbmesh.provenance import Tier
from kbmesh.tiers import tier_to_proto
from kbmesh.tools.kb_search import Number, Text
from services.ingest.entrypoints.http.dependencies import Caller, SmallBody, gateway_of
from services.ingest.entrypoints.http.problems import responses
from services.ingest.handlers.search import assemble_context, retrieve_context

router = APIRouter(tags=["search"])

Query = Annotated[str, Field(min_length=1, max_length=4_000)]
Name = Annotated[str, Field(min_length=1, max_length=100)]
_TIERS: Final[dict[object, Tier | None]] = {
    tier_pb2.Tier.Name(tier_to_proto(tier)): tier for tier in (None, *Tier)
}
ContractTier = Annotated[Tier | None, BeforeValidator(lambda name: _TIERS.get(name, name))]


def _short(prefix: str) -> BeforeValidator:
    """The name of an enum's value without what they all begin with, in lower case."""
    return BeforeValidator(lambda name: name.removeprefix(prefix).lower())


class RetrieveIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: Query
    scopes: list[Name] = Field(default=[], max_length=50, examples=[["documents", "estate"]])
    kinds: list[Name] = Field(
        default=[], max_length=50, description="Beside those of the scopes; neither: every kind."
    )
    top_k: int = Field(10, ge=1, le=50)
    min_score: float = Field(0.4, ge=0, le=1, description="Least cosine similarity to the query.")
    metadata_filter: dict[Text, Text | Number | StrictBool] = Field(
        default={}, max_length=16, description="What the metadata of the source has, beside other values."
    )
    run_id: Text | None = None
    scan_id: Text | None = None
    enforce_source_priority: bool = Field(True, description="False: by relevance alone.")
    max_chars: int = Field(8_000, ge=2_000, le=100_000, description="Of `formatted`.")


class ContextPassageOut(BaseModel):
    chunk_id: UUID
    kind: str
    source_id: str
    title: str
    content: str
    label: str = Field(examples=["[PLATFORM DATA]"])
    tier: ContractTier
    kb_id: str = Field(description="Of documents; else empty.")
    page: int | None = None
    headings: list[str]
    score: float
    reason: str
    duplicates: list[UUID] = Field(description="Chunks that were left out since they say the same; at most 10.")
    conflicts_with: list[UUID] = Field(
        description="Chunks in the answer, of other tiers, that give other numbers for the same subject."
    )


class RetrieveOut(BaseModel):
    passages: list[ContextPassageOut] = Field(description="Best first.")
    formatted: str = Field(description="The same as one labelled text for a prompt.")
    dropped: int = Field(description="Passages for which `formatted` had no room.")
    shortened: bool
    degraded: bool
    degraded_reason: str


class BudgetsIn(BaseModel):
    """In characters."""

    model_config = ConfigDict(extra="forbid")

    max_chars: int = Field(24_000, ge=4_000, le=100_000, description="Of everything.")
    max_overlay_chars: int | None = Field(None, ge=0, le=100_000, description="By default an eighth.")
    max_direct_chars: int | None = Field(None, ge=0, le=100_000, description="By default a quarter.")
    max_skills_chars: int | None = Field(None, ge=0, le=100_000, description="By default an eighth.")
    max_retrieval_chars: int | None = Field(None, ge=0, le=100_000, description="By default what is left.")


class AssembleIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    question: Query
    intent: Literal["business", "technical", "dashboard", "navigation", "exploration", "strategic"]
    persona: Name | None = Field(None, description="Who asks; records for that persona come first.")
    channel_id: str | None = Field(
        None, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$", description="As in a search."
    )
    budgets: BudgetsIn | None = None


Strategy = Annotated[Literal["direct", "skills", "retrieval"], _short("STRATEGY_")]


class SectionOut(BaseModel):
    strategy: Strategy
    name: str
    text: str


class EntryOut(BaseModel):
    strategy: Strategy
    section: str
    kind: str
    source_id: str
    chunk_id: str
    title: str
    label: str
    score: float | None = None
    characters: int | None = Field(None, description="In `formatted`; null for a part of the overlay.")
    tokens: int | None = None
    outcome: Annotated[Literal["included", "shortened", "duplicate", "over_budget"], _short("OUTCOME_")]


class StrategyOut(BaseModel):
    strategy: Strategy
    status: Annotated[Literal["ok", "degraded", "failed", "not_configured"], _short("STRATEGY_STATUS_")]
    reason: str = Field(description="Begins with a code; empty if the status is ok.")
    milliseconds: int
    characters: int


class ScopeOut(BaseModel):
    scope: str
    top_k: int
    min_score: float
    found: int
    below_floor: int
    beyond_top_k: int


class ReceiptOut(BaseModel):
    entries: list[EntryOut] = Field(description="In the order of the text, dropped ones in their places.")
    strategies: list[StrategyOut]
    scopes: list[ScopeOut]
    relaxed: bool = Field(description="Nothing cleared the floors of the plan: they were lowered once.")
    max_chars: int
    overlay_characters: int
    framing_characters: int
    characters: int = Field(description="Of the overlay, the framing, and the entries.")
    tokens: int = Field(description="An estimate: a quarter of the characters.")


class AssembleOut(BaseModel):
    system_overlay: str = Field(description="Rules of skills for the system prompt.")
    formatted: str
    sections: list[SectionOut]
    receipt: ReceiptOut
    degraded: bool


@router.post("/context/retrieve", dependencies=[SmallBody], responses=responses(400, 413, 429))
async def retrieve(request: Request, _: Caller, body: RetrieveIn) -> RetrieveOut:
    """Passages of documents that you see and of records of every kind, also as one text for a prompt."""
    answer = await retrieve_context(gateway_of(request).search, _authorization(request), _given(body))
    return RetrieveOut.model_validate(answer)


@router.post("/context/assemble", dependencies=[SmallBody], responses=responses(400, 404, 413, 429))
async def assemble(request: Request, _: Caller, body: AssembleIn) -> AssembleOut:
    """Records, skills and passages for a question as one text for a prompt, with a receipt of what is in it."""
    answer = await assemble_context(gateway_of(request).search, _authorization(request), _given(body))
    return AssembleOut.model_validate(answer)


def _given(body: BaseModel) -> dict[str, Any]:
    return body.model_dump(mode="json", exclude_none=True)


def _authorization(request: Request) -> str | None:
    return request.headers.get("authorization")
