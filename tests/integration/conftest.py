"""A caller of the gateway with a knowledge base, and what handles the events of its documents."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from kbmesh.postgres import Pool
from tests.support.gateway import ALICE, bearer, client_of, make_gateway
from tests.support.pipeline import TOPICS, Pipeline


@pytest.fixture
def store_dir(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
async def http(pool: Pool, store_dir: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(make_gateway(pool, store_dir, TOPICS)) as client:
        client.headers.update(bearer(ALICE))
        yield client


@pytest.fixture
async def kb(http: httpx.AsyncClient) -> str:
    created: dict[str, str] = (await http.post("/knowledge-bases", json={"name": "Finance"})).json()
    return created["id"]


@pytest.fixture
async def pipeline(pool: Pool, store_dir: Path) -> Pipeline:
    made = Pipeline(pool, store_dir)
    await made.open()
    return made
