"""Search as JSON: for programs, and as a tool for language models."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from kbmesh import tools
from kbmesh.provenance import Category, Tier
from services.ingest.domain.metadata import MAX_NUMBER
from services.ingest.domain.search import Filters, Mode, Question, SearchAnswer
from services.ingest.entrypoints.http.dependencies import Caller, SmallBody, gateway_of
from services.ingest.entrypoints.http.problems import responses
from services.ingest.handlers.search import kb_search

router = APIRouter(tags=["search"])

# Without a limit pydantic lets halves of surrogate pairs through, which nothing behind it can encode.
Text = Annotated[str, Field(max_length=16_384)]
Number = Annotated[float, Field(strict=True, ge=-MAX_NUMBER, le=MAX_NUMBER)]


class RangeIn(BaseModel):
    """Numbers, or texts in the order of their code points, such as dates in ISO 8601. Bounds belong to it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"minProperties": 1})

    gte: Text | Number | None = None
    lte: Text | Number | None = None


class FiltersIn(BaseModel):
    """What must hold of the documents that passages come from, all of it."""

    model_config = ConfigDict(extra="forbid")

    category: Category | None = None
    document_ids: list[UUID] = Field(default=[], max_length=100)
    content_type: str | None = Field(
        None, min_length=1, max_length=255, description="A media type.", examples=["application/pdf"]
    )
    metadata: dict[Text, Text | Number | StrictBool | list[Text] | RangeIn | None] = Field(
        default={},
        max_length=10,
        description="Values that were noted on the document, beside others; an object with gte or lte is a range.",
        examples=[{"owner": "Finance", "year": {"gte": 2024}}],
    )
    created_after: datetime | None = Field(None, description="Uploaded first at that moment or later.")
    created_before: datetime | None = None


class ToolIn(tools.KbSearchArguments):
    channel_id: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="A chat channel: look in its knowledge bases only.",
    )
    mode: Literal["hybrid", "vector", "keyword"] = Field(
        "hybrid", description="By meaning and words, by meaning alone, or by words alone."
    )
    filters: FiltersIn | None = None
    min_score: float = Field(0, ge=0, le=1, description="Leave out passages whose score is lower.")


class SearchIn(ToolIn):
    explain: bool = Field(False, description="Say how each score came about.")
    expand: int = Field(0, ge=0, le=3, description="Merge each passage with so many chunks on each side of it.")


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
    duplicates: list[UUID] = Field(description="Chunks that were left out since they say the same; at most 10.")
    conflicts_with: list[UUID] = Field(
        description="Chunks in the answer, of other tiers, that give other numbers for the same subject."
    )


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
    return SearchOut.model_validate(await _answer(request, body, explain=body.explain, expand=body.expand))


@router.post("/tools/kb_search", dependencies=[SmallBody], responses=responses(400, 404, 413, 429))
async def call_tool(request: Request, _: Caller, body: ToolIn) -> ToolOut:
    """The same search, with what a language model needs of the answer."""
    return ToolOut.of(await _answer(request, body))


@router.get("/tools/kb_search", responses=responses())
async def describe_tool(_: Caller) -> tools.ToolDefinition:
    """What to tell a language model about `POST /tools/kb_search`."""
    return tools.definition(ToolIn)


async def _answer(request: Request, body: ToolIn, *, explain: bool = False, expand: int = 0) -> SearchAnswer:
    return await kb_search(
        gateway_of(request).search,
        request.headers.get("authorization"),
        Question(
            query=body.query,
            kb_ids=body.kb_ids,
            limit=body.limit,
            channel_id=body.channel_id,
            mode=Mode(body.mode),
            filters=None if body.filters is None else Filters(**body.filters.model_dump()),
            min_score=body.min_score,
            explain=explain,
            expand=expand,
        ),
    )
