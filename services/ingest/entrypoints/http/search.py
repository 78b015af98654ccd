"""Search as JSON: for programs, and as a tool for language models."""

from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from kbmesh import tools
from kbmesh.provenance import Category, Tier
from services.ingest.domain.search import SearchAnswer
from services.ingest.entrypoints.http.dependencies import Caller, SmallBody, gateway_of
from services.ingest.entrypoints.http.problems import responses
from services.ingest.handlers.search import kb_search

router = APIRouter(tags=["search"])


class SearchIn(tools.KbSearchArguments):
    explain: bool = Field(False, description="Say how each score came about.")


class CitationOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    page: int | None = Field(description="From 1; null for formats without pages.")
    headings: list[str] = Field(description="Above the passage, outermost first.")
    char_start: int
    char_end: int
    content_sha256: str


class ScoreOut(BaseModel):
    """value = relevance × tier_weight × freshness."""

    model_config = ConfigDict(from_attributes=True)

    value: float
    relevance: float
    tier_weight: float
    freshness: float
    vector_rank: int | None
    keyword_rank: int | None
    reason: str


class ExplanationOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    rank: int = Field(description="In the answer, from 1.")
    vector_similarity: float | None = Field(description="The cosine; null where that leg did not find it.")
    keyword_similarity: float | None


class PassageOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    chunk_id: UUID
    document_id: UUID
    kb_id: UUID
    filename: str
    category: Category
    content: str
    label: str = Field(examples=["[UPLOADED DOCUMENT: handbook.pdf]"])
    tier: Tier | None
    citation: CitationOut
    score: ScoreOut
    explanation: ExplanationOut | None = Field(description="If it was asked for.")


class SearchOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    passages: list[PassageOut] = Field(description="Best first.")
    degraded: bool = Field(description="One of the two legs could not answer; the results are of the other.")
    degraded_reason: str


class ToolOut(tools.KbSearchResult):
    text: str = Field(description="The same for a language model to read, with the labels explained.")

    @classmethod
    def of(cls, answer: SearchAnswer) -> "ToolOut":
        result = tools.KbSearchResult(
            passages=[
                tools.Passage(
                    label=passage.label,
                    tier=passage.tier,
                    content=passage.content,
                    citation=tools.Citation(
                        document_id=UUID(passage.document_id),
                        filename=passage.filename,
                        page=passage.citation.page,
                        headings=list(passage.citation.headings),
                    ),
                    score=passage.score.value,
                )
                for passage in answer.passages
            ],
            degraded=answer.degraded,
        )
        return cls(passages=result.passages, degraded=result.degraded, text=tools.render(result))


@router.post("/search", dependencies=[SmallBody], responses=responses(400, 404, 413, 429))
async def search(request: Request, _: Caller, body: SearchIn) -> SearchOut:
    """Passages from the knowledge bases that you see, ranked by relevance and provenance."""
    return SearchOut.model_validate(await _answer(request, body, explain=body.explain))


@router.post("/tools/kb_search", dependencies=[SmallBody], responses=responses(400, 404, 413, 429))
async def call_tool(request: Request, _: Caller, body: tools.KbSearchArguments) -> ToolOut:
    """The same search, with what a language model needs of the answer."""
    return ToolOut.of(await _answer(request, body))


@router.get("/tools/kb_search", responses=responses())
async def describe_tool(_: Caller) -> tools.ToolDefinition:
    """What to tell a language model about `POST /tools/kb_search`."""
    return tools.definition()


async def _answer(request: Request, body: tools.KbSearchArguments, *, explain: bool = False) -> SearchAnswer:
    return await kb_search(gateway_of(request).search, request.headers.get("authorization"), body, explain=explain)
