"""From an accepted upload to chunks, over the real tables, with the extractor's answer given."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest

from kbmesh.auth import Principal
from kbmesh.errors import Unavailable
from kbmesh.messaging import Topics
from kbmesh.postgres import Pool
from kbmesh.provenance import Category, Tier
from services.ingest.adapters.directory import DirectoryStore
from services.ingest.adapters.postgres import PostgresDocuments, PostgresKnowledgeBases
from services.ingest.domain.content_type import ContentType
from services.ingest.domain.extraction import ChunkDraft, ExtractionFailed
from services.ingest.domain.headers import Origin
from services.ingest.domain.models import Document, OwnerType, Removed, Status
from services.ingest.handlers.documents import UploadForm, UploadLimits, delete_document, upload_document
from services.ingest.handlers.extraction import extract_document, give_up_document
from tests.support.documents import one_at_a_time

ALICE = Principal(UUID(int=1))
TOPICS = Topics("kbmesh")
Interruption = Callable[[], Awaitable[object]]


def drafts(*texts: str) -> list[ChunkDraft]:
    return [ChunkDraft(n, text, 0, len(text), 3, 1, ("Heading",)) for n, text in enumerate(texts)]


@dataclass
class GivenExtractor:
    answer: list[ChunkDraft] | Exception
    during: list[Interruption] = field(default_factory=list)

    async def extract(self, path: Path, content_type: ContentType, origin: Origin) -> list[ChunkDraft]:
        assert path.read_bytes()
        for interruption in self.during:
            await interruption()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class World:
    def __init__(self, pool: Pool, store_dir: Path) -> None:
        self.pool = pool
        self.documents = PostgresDocuments(pool, TOPICS)
        self.knowledge_bases = PostgresKnowledgeBases(pool, TOPICS)
        self.store = DirectoryStore(store_dir)
        self.kb_id = UUID(int=0)

    async def upload(
        self, text: bytes = b"text", category: str = "other", priority: str | None = None
    ) -> Document:
        async def body() -> AsyncIterator[bytes]:
            yield text

        document, _ = await upload_document(
            self.knowledge_bases,
            self.documents,
            self.store,
            UploadLimits(1000, 5),
            ALICE,
            self.kb_id,
            body(),
            lambda: UploadForm("a.txt", category, priority),
        )
        return document

    async def extract(
        self, document: Document, answer: list[ChunkDraft] | Exception, *during: Interruption
    ) -> None:
        await extract_document(
            self.documents,
            self.store,
            GivenExtractor(answer, list(during)),
            one_at_a_time(),
            document_id=document.id,
            revision=document.revision,
            size_bytes=document.size_bytes,
            superseded_storage_key="",
        )

    async def delete(self, document: Document) -> Removed:
        return await delete_document(self.knowledge_bases, self.documents, self.store, ALICE, document.id)

    async def now(self, document: Document) -> Document:
        found = await self.documents.find(ALICE, document.id)
        assert found is not None
        return found

    async def chunks(self) -> list[tuple[int, str, bool]]:
        rows = await self.pool.fetch("SELECT revision, content, live FROM chunks ORDER BY revision, ordinal")
        return [(row["revision"], row["content"], row["live"]) for row in rows]

    async def events(self, topic: str) -> int:
        count: int = await self.pool.fetchval("SELECT count(*) FROM outbox WHERE topic = $1", topic)
        return count


@pytest.fixture
async def world(pool: Pool, tmp_path: Path) -> World:
    made = World(pool, tmp_path / "store")
    created = await made.knowledge_bases.create(OwnerType.USER, ALICE.sub, "KB", "")
    made.kb_id = created.id
    return made


async def test_chunks_of_a_first_revision_are_live_at_once(world: World) -> None:
    document = await world.upload()

    await world.extract(document, drafts("one", "two"))

    after = await world.now(document)
    assert (after.status, after.chunk_count, after.live_revision) == (Status.EMBEDDING, 2, 1)
    assert await world.chunks() == [(1, "one", True), (1, "two", True)]
    assert await world.events(TOPICS.chunks) == 1


async def test_chunks_are_announced_in_groups_of_32(world: World) -> None:
    document = await world.upload()
    await world.extract(document, drafts(*(f"chunk {n}" for n in range(65))))
    assert await world.events(TOPICS.chunks) == 3


@pytest.mark.parametrize(
    ("category", "priority", "tier"),
    [
        ("other", None, Tier.CUSTOMER_FACT),
        ("strategy", None, Tier.ADVISORY_GUIDANCE),
        ("strategy", "CustomerFact", Tier.CUSTOMER_FACT),
        ("data_dictionary", "IndustryBenchmark", Tier.INDUSTRY_BENCHMARK),
    ],
)
async def test_the_tier_is_the_priority_given_or_that_of_the_category(
    world: World, category: str, priority: str | None, tier: Tier
) -> None:
    document = await world.upload(category=category, priority=priority)
    await world.extract(document, drafts("one"))
    assert await world.pool.fetchval("SELECT tier FROM chunks") == tier
    assert document.category is Category(category)


async def test_a_redelivered_event_changes_nothing(world: World) -> None:
    document = await world.upload()
    await world.extract(document, drafts("one"))
    before = (await world.now(document), await world.chunks(), await world.events(TOPICS.chunks))

    await world.extract(document, drafts("one"))

    assert (await world.now(document), await world.chunks(), await world.events(TOPICS.chunks)) == before


async def test_a_new_revision_waits_behind_the_live_one(world: World) -> None:
    await world.extract(await world.upload(), drafts("old"))
    second = await world.upload(b"text two")

    await world.extract(second, drafts("new"))

    assert await world.chunks() == [(1, "old", True), (2, "new", False)]
    assert (await world.now(second)).live_revision == 1


async def test_a_revision_that_never_went_live_leaves_nothing_behind(world: World) -> None:
    await world.extract(await world.upload(), drafts("one"))
    await world.extract(await world.upload(b"text two"), drafts("two"))
    await world.extract(await world.upload(b"text three"), drafts("three"))
    assert await world.chunks() == [(1, "one", True), (3, "three", False)]


async def test_an_outdated_event_is_ignored(world: World) -> None:
    first = await world.upload()
    await world.upload(b"text two")

    await world.extract(first, drafts("old"))

    assert await world.chunks() == []


async def test_an_upload_during_extraction_wins(world: World) -> None:
    first = await world.upload()

    await world.extract(first, drafts("old"), lambda: world.upload(b"text two"))

    assert await world.chunks() == []
    assert (await world.now(first)).status is Status.PENDING


async def test_a_deleted_document_is_not_resurrected(world: World) -> None:
    document = await world.upload()

    await world.extract(document, drafts("old"), lambda: world.delete(document))
    await world.extract(document, drafts("old"))

    assert await world.documents.find(ALICE, document.id) is None
    assert await world.chunks() == []


async def test_a_file_without_text_is_empty(world: World) -> None:
    document = await world.upload()
    await world.extract(document, [])
    after = await world.now(document)
    assert (after.status, after.error_code, after.chunk_count) == (Status.EMPTY, None, 0)


async def test_an_empty_revision_takes_the_old_text_out_of_search(world: World) -> None:
    await world.extract(await world.upload(), drafts("old"))
    second = await world.upload(b"text two")
    await world.extract(second, [])
    assert await world.chunks() == []
    assert (await world.now(second)).live_revision == 2


async def test_a_failed_extraction_says_why_and_keeps_the_old_revision(world: World) -> None:
    await world.extract(await world.upload(), drafts("old"))
    second = await world.upload(b"text two")

    await world.extract(second, ExtractionFailed("it is torn", code="corrupt_file"))

    after = await world.now(second)
    assert (after.status, after.error_code, after.error_detail) == (Status.FAILED, "corrupt_file", "it is torn")
    assert await world.chunks() == [(1, "old", True)]


async def test_a_failed_document_can_be_uploaded_again_with_the_same_bytes(world: World) -> None:
    document = await world.upload()
    await world.extract(document, ExtractionFailed("it is torn"))
    assert (await world.upload()).revision == 2


async def test_an_object_that_is_gone_fails_the_document(world: World) -> None:
    document = await world.upload()
    await world.store.delete(await world.pool.fetchval("SELECT storage_key FROM documents"))
    await world.extract(document, drafts("never"))
    assert (await world.now(document)).error_code == "object_missing"


async def test_an_outage_leaves_the_document_for_the_next_try(world: World) -> None:
    document = await world.upload()

    with pytest.raises(Unavailable):
        await world.extract(document, Unavailable("the store is down"))
    assert (await world.now(document)).status is Status.PROCESSING

    await world.extract(document, drafts("one"))
    assert (await world.now(document)).status is Status.EMBEDDING


async def test_giving_up_marks_only_what_still_waits(world: World) -> None:
    waiting = await world.upload()
    await give_up_document(world.documents, document_id=waiting.id, revision=1)
    assert (await world.now(waiting)).error_code == "internal"

    again = await world.upload()
    await world.extract(again, drafts("one"))
    await give_up_document(world.documents, document_id=again.id, revision=again.revision)
    assert (await world.now(again)).status is Status.EMBEDDING


async def test_every_state_is_announced(world: World) -> None:
    document = await world.upload()
    await world.extract(document, drafts("one"))
    await world.delete(document)
    assert await world.events(TOPICS.status) == 4  # pending, processing, embedding, deleted


async def test_deletion_counts_chunks_and_vectors(world: World) -> None:
    document = await world.upload()
    await world.extract(document, drafts("one", "two"))
    await world.pool.execute("CREATE TABLE vectors_t (chunk_id uuid REFERENCES chunks ON DELETE CASCADE)")
    await world.pool.execute("INSERT INTO vectors_t SELECT id FROM chunks")
    await world.pool.execute("INSERT INTO embedding_spaces VALUES ('t', 'model', 3, 'active', 'vectors_t')")

    removed = await world.delete(document)

    assert (removed.documents, removed.chunks, removed.vectors) == (1, 2, 2)
    assert await world.pool.fetchval("SELECT count(*) FROM vectors_t") == 0


async def test_a_document_is_pending_until_its_turn_and_not_extracted_if_cancelled_before(world: World) -> None:
    document = await world.upload()
    turns = one_at_a_time()
    extractor = GivenExtractor(AssertionError("extracted"))
    async with turns.turn(1):
        waiting = asyncio.create_task(
            extract_document(
                world.documents,
                world.store,
                extractor,
                turns,
                document_id=document.id,
                revision=1,
                size_bytes=1,
                superseded_storage_key="",
            )
        )
        assert (await world.now(document)).status is Status.PENDING
        await world.documents.cancel(ALICE, document.id)
    await waiting
    assert (await world.now(document)).error_code == "cancelled"
