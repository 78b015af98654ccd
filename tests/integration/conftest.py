from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kbmesh.postgres import Pool
from tests.support.pipeline import Pipeline
from tests.support.webhooks import Receiver, receiving


@pytest.fixture
async def pipeline(pool: Pool, store_dir: Path) -> Pipeline:
    """What handles the events of documents."""
    made = Pipeline(pool, store_dir)
    await made.open()
    return made


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver
