"""The gateway in this process, over the real database and a directory store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import httpx
import jwt
from pydantic import SecretStr

from kbmesh.auth import Authenticator, AuthMode, AuthSettings
from kbmesh.messaging import Topics
from kbmesh.postgres import Pool
from services.ingest.adapters.directory import DirectoryStore
from services.ingest.adapters.endpoints import HttpEndpoints
from services.ingest.adapters.postgres import (
    PostgresChannels,
    PostgresDocuments,
    PostgresKnowledgeBases,
    PostgresWebhooks,
)
from services.ingest.domain.models import Quota
from services.ingest.entrypoints.http import Gateway, create_app
from services.ingest.handlers.documents import UploadLimits
from services.ingest.handlers.watching import Watches, WatchLimits
from services.ingest.ports import EmbeddingProvider

SECRET = "a secret of the tests, which is long enough"
AUTH = AuthSettings(mode=AuthMode.HS256, secret=SecretStr(SECRET))
MAX_BYTES = 1_000_000
ALICE, BOB, TEAM = UUID(int=1), UUID(int=2), UUID(int=3)


def token(sub: UUID, *, teams: tuple[UUID, ...] = (), roles: tuple[str, ...] = ()) -> str:
    claims = {
        "sub": str(sub),
        "aud": AUTH.audience,
        # Some are made when the tests are collected.
        "exp": datetime.now(UTC) + timedelta(hours=12),
        "teams": [str(team) for team in teams],
        "roles": list(roles),
    }
    return jwt.encode(claims, SECRET, "HS256")


def bearer(sub: UUID, *, teams: tuple[UUID, ...] = (), roles: tuple[str, ...] = ()) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(sub, teams=teams, roles=roles)}"}


class Embedding:
    """There is a model, in tests that are not about whether there is."""

    async def require(self) -> None:
        return


def make_gateway(
    pool: Pool,
    store_dir: Path,
    topics: Topics,
    *,
    idle_timeout_s: float = 5,
    embedding: EmbeddingProvider | None = None,
    writable: bool = True,
    quota: Quota = Quota(),  # noqa: B008 - frozen
    allow_private: bool = False,
) -> Gateway:
    async def ready() -> dict[str, str]:
        return {}

    return Gateway(
        authenticator=Authenticator(AUTH),
        knowledge_bases=PostgresKnowledgeBases(pool, topics),
        channels=PostgresChannels(pool),
        documents=PostgresDocuments(pool, topics, quota),
        store=DirectoryStore(store_dir),
        embedding=embedding or Embedding(),
        limits=UploadLimits(MAX_BYTES, idle_timeout_s),
        search=None,
        writable=writable,
        watches=Watches(WatchLimits()),
        webhooks=PostgresWebhooks(pool),
        endpoints=HttpEndpoints(allow_private=allow_private, timeout_s=5),
        webhook_key=b"a key of the tests",
        webhooks_per_user=3,
        ready=ready,
    )


@asynccontextmanager
async def client_of(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(gateway), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=10) as client:
        yield client


def stored_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())
