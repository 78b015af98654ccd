from fastapi import APIRouter, Request, Response

from services.ingest.entrypoints.http.dependencies import gateway_of

router = APIRouter(prefix="/health", tags=["health"])


@router.get("/live", status_code=204)
async def live() -> None:
    """The process answers."""


@router.get("/ready", responses={503: {"description": "A part of it cannot do its work."}})
async def ready(request: Request, response: Response) -> dict[str, str]:
    """Every part of this process can do its work; else 503 and what is wrong, by part."""
    problems = await gateway_of(request).ready()
    if problems:
        response.status_code = 503
    return problems
