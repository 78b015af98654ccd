"""What is in a document: its original file, and the chunks that search sees."""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any, Final
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from services.ingest.domain.models import Document
from services.ingest.entrypoints.http.dependencies import Caller, gateway_of
from services.ingest.entrypoints.http.etags import IfNoneMatch, etag, is_known
from services.ingest.entrypoints.http.problems import responses
from services.ingest.entrypoints.http.schemas import ChunkOut, ChunkPage
from services.ingest.handlers.content import list_chunks, open_original
from services.ingest.handlers.documents import get_document

router = APIRouter(prefix="/documents/{document_id}", tags=["documents"])

ORIGINAL: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The bytes as they were uploaded, as the `content_type` of the document.",
        "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
    },
    304: {"description": "The caller has these bytes already."},
}


class _Original(StreamingResponse):
    """A stream that is closed however the response ends, begun or not."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes, None], headers: dict[str, str]) -> None:
        super().__init__(self._pieces(first), headers=headers)
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._rest.aclose()

    async def _pieces(self, first: bytes) -> AsyncIterator[bytes]:
        yield first
        async for piece in self._rest:
            yield piece


@router.get("/content", response_class=Response, responses=responses(404) | ORIGINAL)
async def content(
    request: Request, caller: Caller, document_id: UUID, if_none_match: IfNoneMatch = None
) -> Response:
    """Downloads the file of the newest revision, as it was uploaded. The `ETag` is its SHA-256."""
    gateway = gateway_of(request)
    document = await get_document(gateway.documents, caller, document_id)
    headers = _headers(document)
    if is_known(document.content_sha256.hex(), if_none_match):
        return Response(status_code=304, headers={"ETag": headers["ETag"]})
    first, rest = await open_original(gateway.store, document)
    return _Original(first, rest, headers)


@router.get("/chunks", responses=responses(404))
async def chunks(
    request: Request,
    caller: Caller,
    document_id: UUID,
    after: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> ChunkPage:
    """The chunks that search sees, in reading order. A newer `revision` on a later page: begin again."""
    found = await list_chunks(gateway_of(request).documents, caller, document_id, after=after, limit=limit)
    return ChunkPage(
        items=[ChunkOut.model_validate(chunk) for chunk in found],
        next_after=found[-1].ordinal if len(found) == limit else None,
    )


def _headers(document: Document) -> dict[str, str]:
    # The type as a header: Starlette would add a charset to it, and perhaps a wrong one.
    return {
        "Content-Type": document.content_type,
        "Content-Length": str(document.size_bytes),
        "Content-Disposition": _attachment(document.filename),
        "ETag": etag(document.content_sha256.hex()),
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, no-cache",
    }


def _attachment(filename: str) -> str:
    """RFC 6266: a plain name for old clients, and the true one in UTF-8."""
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", filename)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"
