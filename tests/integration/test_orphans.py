"""Objects that no document points to: how they come about, and that nothing else is removed."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from kbmesh.errors import Unavailable
from kbmesh.http import HttpSettings
from kbmesh.messaging import KafkaSettings
from kbmesh.postgres import Pool, PostgresSettings
from services.ingest.adapters.directory import DirectoryStore
from services.ingest.adapters.postgres import PostgresStorageKeys
from services.ingest.bootstrap import bootstrap
from services.ingest.handlers.orphans import OrphanCollector, OrphanPolicy
from services.ingest.ports import Known
from services.ingest.settings import IngestSettings, Role, StoreSettings
from tests.support.documents import upload
from tests.support.gateway import AUTH, stored_files

DAY_S = 86400.0
POLICY = OrphanPolicy(grace_s=DAY_S, interval_s=0.01, max_count=10)
GATEWAY_THAT_DIES = """
import asyncio, sys
from pathlib import Path
from uuid import uuid4
from services.ingest.adapters.directory import DirectoryStore

async def whole():
    yield b"stored, and then the process died"

async def half():
    yield b"the first half"
    print("here", flush=True)
    await asyncio.Event().wait()

async def main():
    store, kb = DirectoryStore(Path(sys.argv[1])), uuid4()
    await store.put(f"{kb}/{uuid4()}", whole())
    await store.put(f"{kb}/{uuid4()}", half())

asyncio.run(main())
"""


@pytest.fixture
def collector(pool: Pool, store_dir: Path) -> OrphanCollector:
    return OrphanCollector(DirectoryStore(store_dir), PostgresStorageKeys(pool), POLICY)


def age(store_dir: Path) -> None:
    """Everything that is stored now is older than the grace time."""
    then = time.time() - DAY_S - 1
    for file in stored_files(store_dir):
        os.utime(file, (then, then))


def lose(store_dir: Path) -> Path:
    """An object without a document."""
    path = store_dir / str(uuid4()) / str(uuid4())
    path.parent.mkdir(parents=True)
    path.write_bytes(b"lost")
    return path


async def test_what_a_killed_gateway_leaves_in_the_store_is_removed(
    http: httpx.AsyncClient, kb: str, store_dir: Path, collector: OrphanCollector
) -> None:
    document = await upload(http, kb, b"text")
    kept = stored_files(store_dir)
    dying = await asyncio.create_subprocess_exec(
        sys.executable, "-c", GATEWAY_THAT_DIES, str(store_dir), stdout=asyncio.subprocess.PIPE
    )
    assert dying.stdout is not None
    assert await asyncio.wait_for(dying.stdout.readline(), 60) == b"here\n"
    dying.send_signal(signal.SIGKILL)
    await dying.wait()
    left = set(stored_files(store_dir)) - set(kept)
    assert sorted(path.parent.name == ".incoming" for path in left) == [False, True]

    assert await collector.collect() == 0  # they are young: an upload may be about to write its document
    age(store_dir)
    assert await collector.collect() == 2

    assert stored_files(store_dir) == kept
    assert (await http.get(f"/documents/{document}/content")).content == b"text"


async def test_an_upload_that_takes_its_time_keeps_its_object(
    http: httpx.AsyncClient, kb: str, store_dir: Path, collector: OrphanCollector
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"the first half, "
        begun.set()
        await go_on.wait()
        yield b"and the second"

    path = f"/knowledge-bases/{kb}/documents?filename=a.txt"
    uploading = asyncio.create_task(http.post(path, content=slow()))
    lost = lose(store_dir)
    age(store_dir)
    await begun.wait()
    assert await collector.collect() == 1
    go_on.set()

    assert (await uploading).status_code == 202
    assert [file.read_bytes() for file in stored_files(store_dir)] == [b"the first half, and the second"]
    assert not lost.exists()


async def test_files_of_others_in_the_store_stay(store_dir: Path, collector: OrphanCollector) -> None:
    for name in ("notes.txt", "backup/2026.tar", f"{uuid4()}/notes.txt", f"{uuid4()}/{uuid4()}/deep"):
        path = store_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"theirs")
    age(store_dir)
    assert await collector.collect() == 0
    assert len(stored_files(store_dir)) == 4


async def test_more_orphans_than_uploads_can_lose_are_left_for_a_person_to_look_at(
    store_dir: Path, collector: OrphanCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.ingest.handlers.orphans.BATCH", 4)
    for _ in range(POLICY.max_count + 1):
        lose(store_dir)
    age(store_dir)
    assert await collector.collect() == 0
    stored_files(store_dir)[0].unlink()
    assert await collector.collect() == POLICY.max_count
    assert stored_files(store_dir) == []


async def test_collectors_take_turns(pool: Pool, store_dir: Path, collector: OrphanCollector) -> None:
    lose(store_dir)
    age(store_dir)
    async with PostgresStorageKeys(pool).exclusive() as known:
        assert known is not None
        assert await collector.collect() == 0
    assert await collector.collect() == 1


async def test_an_object_whose_document_appears_meanwhile_stays(
    http: httpx.AsyncClient, kb: str, pool: Pool, store_dir: Path
) -> None:
    await upload(http, kb, b"text")
    age(store_dir)

    async def nothing(_: Sequence[str]) -> set[str]:
        return set()

    class AtFirstUnknown(PostgresStorageKeys):
        @asynccontextmanager
        async def exclusive(self) -> AsyncIterator[Known | None]:
            async with super().exclusive() as really:
                answers = iter([nothing, really])

                async def known(keys: Sequence[str]) -> set[str]:
                    answer = next(answers)
                    assert answer is not None
                    return await answer(keys)

                yield known

    collector = OrphanCollector(DirectoryStore(store_dir), AtFirstUnknown(pool), POLICY)
    assert await collector.collect() == 0
    assert len(stored_files(store_dir)) == 1


async def test_a_store_that_is_down_is_tried_again(pool: Pool, store_dir: Path) -> None:
    removed = asyncio.Event()

    class DownAtFirst(DirectoryStore):
        tries = 0

        async def delete(self, key: str) -> None:
            self.tries += 1
            if self.tries == 1:
                raise Unavailable("the store is down", code="store_unavailable")
            await super().delete(key)
            removed.set()

    lose(store_dir)
    age(store_dir)
    collector = OrphanCollector(DownAtFirst(store_dir), PostgresStorageKeys(pool), POLICY)
    running = asyncio.create_task(collector.run())
    await asyncio.wait_for(removed.wait(), 30)
    running.cancel()
    await asyncio.wait([running])
    assert stored_files(store_dir) == []


async def test_the_service_collects_when_it_starts(postgres_settings: PostgresSettings, store_dir: Path) -> None:
    lost = lose(store_dir)
    age(store_dir)
    settings = IngestSettings(
        roles=frozenset({Role.COLLECTOR}),
        http=HttpSettings(port=0),
        auth=AUTH,
        postgres=postgres_settings,
        kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"),
        store=StoreSettings(directory=store_dir),
    )
    async with bootstrap(settings), asyncio.timeout(30):
        while lost.exists():
            await asyncio.sleep(0.01)
