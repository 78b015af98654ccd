"""Errors as problem details (RFC 9457), with a `code` that programs can rely on."""

from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from kbmesh import errors
from kbmesh.http import headers_of, status_of
from kbmesh.observability import tracing
from services.ingest.entrypoints.http import examples

log = structlog.get_logger(__name__)

TYPES: Final = {
    code: f"https://kbmesh.dev/problems/{code.replace('_', '-')}"
    for code in ("knowledge_bases_disabled", "knowledge_base_unavailable")
}
"""Problems that a page shows in a way of its own; all others are told apart by their code."""


class Problem(BaseModel):
    """What every error answers."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.PROBLEM]})

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    trace_id: str | None = None
    errors: list[dict[str, Any]] | None = None


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses of a route that may fail with `statuses`, beside those that any route has."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in sorted({*statuses, 401, 422, 503})
    }


def problem_of(error: errors.KbmeshError) -> Problem:
    return _problem(status_of(error), error.code, error.detail)


def install(app: FastAPI) -> None:
    app.exception_handler(errors.KbmeshError)(_known)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_http)
    app.exception_handler(ClientDisconnect)(_gone)
    app.exception_handler(Exception)(_unknown)
    generate = app.openapi

    def with_problem() -> dict[str, Any]:
        document = generate()
        document["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        return document

    app.openapi = with_problem  # type: ignore[method-assign]  # FastAPI documents this as the way


async def _known(_: Request, error: errors.KbmeshError) -> JSONResponse:
    return _answer(problem_of(error))


async def _invalid(_: Request, error: RequestValidationError) -> JSONResponse:
    fields = [{"field": ".".join(map(str, item["loc"])), "message": item["msg"]} for item in error.errors()]
    detail = "The request does not have the form that this route takes."
    return _answer(_problem(422, "invalid_request", detail, fields))


async def _http(_: Request, error: HTTPException) -> JSONResponse:
    if (
        error.status_code == 400
    ):  # FastAPI's, for JSON that is not UTF-8 or nested too deeply; other bad JSON is 422
        return _answer(_problem(422, "invalid_request", "The body cannot be read as JSON."))
    code = HTTPStatus(error.status_code).name.lower()
    return _answer(_problem(error.status_code, code, str(error.detail)), dict(error.headers or {}))


async def _gone(request: Request, _: ClientDisconnect) -> Response:
    log.info("caller_gone", path=request.url.path)
    return Response(status_code=400)  # to nobody


async def _unknown(request: Request, error: Exception) -> JSONResponse:
    log.error("request_failed", path=request.url.path, error=type(error).__name__, exc_info=error)
    return _answer(_problem(500, "internal", "Internal error; the log has the details."))


def _problem(status: int, code: str, detail: str, fields: list[dict[str, Any]] | None = None) -> Problem:
    return Problem(
        type=TYPES.get(code, "about:blank"),
        title=HTTPStatus(status).phrase,
        status=status,
        code=code,
        detail=detail,
        trace_id=tracing.current_trace_id(),
        errors=fields,
    )


def _answer(problem: Problem, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse(
        problem.model_dump(exclude_none=True),
        problem.status,
        headers={**(headers or {}), **headers_of(problem.status)},
        media_type="application/problem+json",
    )
