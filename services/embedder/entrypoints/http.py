"""The models over HTTP, as clients of OpenAI's embeddings speak it: https://platform.openai.com/docs/api-reference/embeddings"""

import asyncio
import base64
from collections.abc import Callable
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any, Final, Literal

import structlog
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPBearer
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from kbmesh.auth import Authenticator
from kbmesh.errors import DeadlineExceeded, KbmeshError, TooLarge, Unavailable
from kbmesh.http import Tracing, headers_of, status_of
from services.embedder import handlers
from services.embedder.domain.encoding import InputType, Vectors
from services.embedder.ports import Models, SpaceDirectory

log = structlog.get_logger(__name__)

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
READ_TIMEOUT_S: Final = 30.0

_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_PARAMS: Final = {
    "bad_text_count": "input",
    "empty_text": "input",
    "text_too_long": "input",
    "bad_dimensions": "dimensions",
    "model_not_found": "model",
}
"""The field that an error is about, by its code."""

_bearer = HTTPBearer(auto_error=False, description="A JWT; not needed where authentication is off.")


class EmbeddingApi:
    """What the routes work with. Answers 503 until `open` was called."""

    def __init__(self, authenticator: Authenticator, serving: Callable[[], bool]) -> None:
        """
        Args:
            serving: what the health service of gRPC says.
        """
        self.authenticator = authenticator
        self.serving = serving
        self._opened: tuple[SpaceDirectory, Models] | None = None

    def open(self, spaces: SpaceDirectory, models: Models) -> None:
        self._opened = spaces, models

    @property
    def opened(self) -> tuple[SpaceDirectory, Models]:
        if self._opened is None:
            raise Unavailable("the model is loading, or there is none", code="model_loading")
        return self._opened


def _as_list(value: Any) -> Any:
    if isinstance(value, list) and any(isinstance(item, (int, list)) for item in value):
        raise PydanticCustomError(
            "tokens_not_supported", "send text: tokens of other tokenizers mean nothing here"
        )
    return [value] if isinstance(value, str) else value


class EmbeddingRequest(BaseModel):
    """Fields that are not named here, such as `user`, are left unread."""

    model: str = Field(max_length=256)
    """A model, or the id of an embedding space: then the vectors can be compared with those of the index."""
    input: Annotated[list[str], BeforeValidator(_as_list, json_schema_input_type=str | list[str])]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    input_type: Literal["query", "document"] = "document"
    """Not OpenAI's: models trained for retrieval encode the two differently."""


class Embedding(BaseModel):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str
    """In base64 the bytes of its values as little-endian float32."""


class Usage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int = 0
    """Not known; clients want a number."""
    owned_by: str = "kbmesh"
    dimensions: int


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


def _api(request: Request) -> EmbeddingApi:
    api: EmbeddingApi = request.app.state.api
    return api


async def _authenticated(request: Request, _: Annotated[Any, Depends(_bearer)]) -> None:
    await _api(request).authenticator.authenticate(request.headers.get("authorization"))


router = APIRouter(prefix="/v1", tags=["OpenAI"], dependencies=[Depends(_authenticated)])
health = APIRouter(prefix="/health", tags=["health"])


# The body is read here and not by FastAPI, which would do so before it asks who the caller is.
@router.post(
    "/embeddings",
    response_model=EmbeddingList,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": EmbeddingRequest.model_json_schema()}},
        }
    },
)
async def create_embeddings(request: Request) -> Response:
    spaces, models = _api(request).opened
    asked = EmbeddingRequest.model_validate_json(await _body(request))
    space = await handlers.find_model(asked.model, asked.dimensions, spaces=spaces, models=models)
    rows: list[list[float] | str] = []
    tokens = 0
    async for part in handlers.embed_many(asked.input, InputType(asked.input_type), space=space, models=models):
        rows += _as_base64(part.vectors) if asked.encoding_format == "base64" else part.vectors.tolist()
        tokens += sum(part.token_counts)
        if await request.is_disconnected():
            raise ClientDisconnect
    answer = EmbeddingList(
        data=[Embedding(index=index, embedding=row) for index, row in enumerate(rows)],
        model=asked.model,
        usage=Usage(prompt_tokens=tokens, total_tokens=tokens),
    )
    return Response(answer.model_dump_json(), media_type="application/json")


@router.get("/models")
async def list_models(request: Request) -> ModelList:
    spaces, models = _api(request).opened
    found = handlers.list_models(spaces=spaces, models=models)
    return ModelList(data=[Model(id=name, dimensions=dimensions) for name, dimensions in found.items()])


@health.get("/live", status_code=204)
async def live() -> None:
    """The process answers."""


@health.get("/ready", responses={503: {"description": "The model is loading, or there is none."}})
async def ready(request: Request, response: Response) -> dict[str, str]:
    """Texts are encoded; else 503 and what is wrong, by part."""
    if _api(request).serving():
        return {}
    response.status_code = 503
    return {"model": "not serving"}


def create_app(api: EmbeddingApi) -> FastAPI:
    app = FastAPI(title="kbmesh embedder", version=version("kbmesh"), summary="Vectors of the models of the index")
    app.state.api = api
    app.include_router(router)
    app.include_router(health)
    app.exception_handler(KbmeshError)(_known)
    app.exception_handler(ValidationError)(_invalid)
    app.exception_handler(HTTPException)(_http)
    app.exception_handler(ClientDisconnect)(_gone)
    app.exception_handler(Exception)(_unknown)
    app.add_middleware(Tracing)
    return app


async def _body(request: Request) -> bytes:
    body = bytearray()
    too_large = TooLarge(f"a request is at most {MAX_BODY_BYTES} bytes")
    if int(request.headers.get("content-length", 0)) > MAX_BODY_BYTES:
        raise too_large
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    raise too_large
    except TimeoutError:
        raise DeadlineExceeded("the request did not arrive in time") from None
    return bytes(body)


def _as_base64(vectors: Vectors) -> list[str]:
    return [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]


async def _known(_: Request, error: KbmeshError) -> JSONResponse:
    return _error(status_of(error), error.code, error.detail, _PARAMS.get(error.code))


async def _invalid(_: Request, error: ValidationError) -> JSONResponse:
    # The first will do: what comes after it is often its consequence.
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(map(str, first["loc"])) or "body"
    code = first["type"] if first["type"] == "tokens_not_supported" else "invalid_request"
    param = str(first["loc"][0]) if first["loc"] else None
    return _error(400, code, f"{field}: {first['msg']}", param)


async def _http(_: Request, error: HTTPException) -> JSONResponse:
    return _error(error.status_code, HTTPStatus(error.status_code).name.lower(), str(error.detail))


async def _gone(request: Request, _: ClientDisconnect) -> Response:
    log.info("caller_gone", path=request.url.path)
    return Response(status_code=400)  # to nobody


async def _unknown(request: Request, error: Exception) -> JSONResponse:
    log.error("request_failed", path=request.url.path, error=type(error).__name__, exc_info=error)
    return _error(500, "internal", "internal error; the log has the details")


def _error(status: int, code: str, message: str, param: str | None = None) -> JSONResponse:
    kind = "server_error" if status >= 500 else _TYPES.get(status, "invalid_request_error")
    error = {"message": message, "type": kind, "param": param, "code": code}
    return JSONResponse({"error": error}, status, headers=headers_of(status))
