from collections.abc import Sequence
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse

from kbmesh.auth import Principal
from kbmesh.errors import InvalidArgument, KbmeshError
from kbmesh.provenance import Category, Tier
from services.ingest.entrypoints.http import examples
from services.ingest.entrypoints.http.dependencies import Uploader, gateway_of
from services.ingest.entrypoints.http.etags import etag
from services.ingest.entrypoints.http.multipart import MultipartForm
from services.ingest.entrypoints.http.problems import problem_of, responses
from services.ingest.entrypoints.http.schemas import UploadedFileOut, UploadedFilesOut, UploadOut
from services.ingest.handlers.documents import UploadForm, upload_document
from services.ingest.handlers.upload_files import Outcome, upload_files
from services.ingest.handlers.upload_stream import on_time

router = APIRouter(tags=["documents"])

UPLOAD_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "category": {"type": "string", "enum": list(Category), "examples": ["data_dictionary"]},
                        "source_priority": {"type": "string", "enum": list(Tier)},
                        "metadata": {
                            "type": "string",
                            "contentMediaType": "application/json",
                            "description": "A JSON object of up to 64 keys and 16 KiB. A value is a text, "
                            "a number, true, false, null or a list of texts.",
                            "examples": [examples.METADATA_TEXT],
                        },
                        "file": {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                            "minItems": 1,
                            "description": "One or several; with several, all other fields come before the first.",
                        },
                    },
                }
            },
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
UPLOAD_ANSWERS: Final[dict[int | str, dict[str, Any]]] = responses(400, 403, 404, 408, 409, 413, 415) | {
    200: {"model": UploadOut, "description": "The document holds these very bytes already."},
    207: {"model": UploadedFilesOut, "description": "Several files: an answer for each, in their order."},
}

Filename = Annotated[str | None, Query(description="For a raw body; a form carries its own.")]
CategoryName = Annotated[str | None, Query(description="As the form field; `other` by default.")]
SourcePriority = Annotated[str | None, Query(description="As the form field; by default the kind's.")]
MetadataText = Annotated[str | None, Query(description="As the form field; none by default.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=r"^[\x20-\x7e]+$",
        description="A name of yours for this upload: repeated within 24 hours, it is answered as before. "
        "With another upload it is refused: 409 `idempotency_key_reused`. Of several files each is told from the "
        "others by its place.",
    ),
]


@router.post(
    "/knowledge-bases/{kb_id}/documents",
    status_code=202,
    response_model=UploadOut,
    openapi_extra=UPLOAD_BODY,
    responses=UPLOAD_ANSWERS,
)
async def upload(
    request: Request,
    response: Response,
    caller: Uploader,
    kb_id: UUID,
    filename: Filename = None,
    category: CategoryName = None,
    source_priority: SourcePriority = None,
    metadata: MetadataText = None,
    idempotency_key: IdempotencyKey = None,
) -> UploadOut | Response:
    """Uploads a file, as a form or as the raw body, or several as one form; a known name makes a new revision of
    that document.

    What is not said about a file falls back to its default, also when it replaces one. The same bytes with other
    metadata make no revision: the document gets the metadata. The answer comes once the file is stored; `GET` at
    `Location` shows how it goes on.
    """
    query = UploadForm(filename or "", category, source_priority, metadata)
    return await take_in(request, response, caller, kb_id, query, idempotency_key)


async def take_in(
    request: Request,
    response: Response,
    caller: Principal,
    kb_id: UUID,
    query: UploadForm,
    idempotency_key: str | None = None,
) -> UploadOut | Response:
    """The upload that the body of the request is; `query`: what its address says about the file."""
    gateway = gateway_of(request)
    body = on_time(request.stream(), gateway.limits.idle_timeout_s)
    content_type = request.headers.get("content-type", "")
    if content_type.lower().startswith("multipart/form-data"):
        form = MultipartForm(
            content_type,
            body,
            max_files=gateway.limits.max_files,
            max_skipped_bytes=gateway.limits.max_bytes,
        )
        outcomes = await upload_files(
            gateway.knowledge_bases,
            gateway.documents,
            gateway.store,
            gateway.limits,
            caller,
            kb_id,
            form.files(),
            lambda name: UploadForm(
                filename=name or query.filename,
                category=form.fields.get("category", query.category),
                source_priority=form.fields.get("source_priority", query.source_priority),
                metadata=form.fields.get("metadata", query.metadata),
            ),
            idempotency_key=idempotency_key,
        )
        if form.several:
            return _one_by_one(outcomes)
        if isinstance(outcomes[0].result, KbmeshError):
            raise outcomes[0].result
        document, changed = outcomes[0].result
    else:
        if not query.filename:
            raise InvalidArgument("say ?filename=... with a raw body", code="filename_missing")
        document, changed = await upload_document(
            gateway.knowledge_bases,
            gateway.documents,
            gateway.store,
            gateway.limits,
            caller,
            kb_id,
            body,
            lambda: query,
            idempotency_key=idempotency_key,
        )
    response.headers["Location"] = f"/documents/{document.id}"
    response.headers["ETag"] = etag(document.version)
    response.status_code = 202 if changed else 200
    return UploadOut.of(document, changed=changed)


def _one_by_one(outcomes: Sequence[Outcome]) -> Response:
    answer = UploadedFilesOut(items=[_item(outcome) for outcome in outcomes])
    return JSONResponse(answer.model_dump(mode="json"), 207)


def _item(outcome: Outcome) -> UploadedFileOut:
    if isinstance(outcome.result, KbmeshError):
        problem = problem_of(outcome.result)
        return UploadedFileOut(filename=outcome.filename, status=problem.status, problem=problem)
    document, changed = outcome.result
    shown = UploadOut.of(document, changed=changed)
    return UploadedFileOut(filename=outcome.filename, status=202 if changed else 200, document=shown)
