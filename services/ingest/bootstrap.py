"""Composition root: which adapter serves which port, and in which order things open and close."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import structlog

from kbmesh.auth import Authenticator, require_loopback
from kbmesh.errors import Unavailable
from kbmesh.http import serve_http
from kbmesh.messaging import Consumer, Producer, run_serial
from kbmesh.postgres import Pool, connection, open_pool
from kbmesh.rpc import open_channel, serve
from services.ingest.adapters.directory import DirectoryStore
from services.ingest.adapters.embedding import EmbeddingHealth
from services.ingest.adapters.endpoints import HttpEndpoints
from services.ingest.adapters.extraction import ChildExtractor
from services.ingest.adapters.ocr import check_ocr
from services.ingest.adapters.postgres import (
    OutboxRelay,
    PostgresChannels,
    PostgresDocuments,
    PostgresKnowledgeBases,
    PostgresRecordOutbox,
    PostgresRecords,
    PostgresStorageKeys,
    PostgresWebhooks,
    listen_for_documents,
)
from services.ingest.adapters.s3 import S3Store
from services.ingest.adapters.search import GrpcSearch
from services.ingest.adapters.text_chunker import TextChunker
from services.ingest.domain.models import Quota
from services.ingest.entrypoints import grpc
from services.ingest.entrypoints.http import Gateway, create_app
from services.ingest.entrypoints.kafka import DocumentEvents, RecordEvents, StatusEvents
from services.ingest.handlers.delivering import DeliveryPolicy, WebhookSender
from services.ingest.handlers.documents import UploadLimits
from services.ingest.handlers.orphans import OrphanCollector, OrphanPolicy
from services.ingest.handlers.turns import Turns
from services.ingest.handlers.watching import Watches, WatchLimits
from services.ingest.ports import ObjectStore
from services.ingest.settings import IngestSettings, Role, StoreSettings

log = structlog.get_logger(__name__)

DOCUMENTS_WINDOW = 64
RECORDS_WINDOW = 64
STATUS_WINDOW = 64
CONCURRENT_KEYS = 4
CONCURRENT_DOCUMENTS = 1024  # nearly all of them wait for their turn, which costs next to nothing


@asynccontextmanager
async def bootstrap(settings: IngestSettings) -> AsyncIterator[int]:
    """The running service, with the roles that the settings name; yields the port of its HTTP server.

    A process without the gateway serves its health routes there alone.

    Raises:
        Misconfigured: the port is taken, auth is off beyond loopback, or OCR is on without what it needs.
        Unavailable: the database or the object store does not answer.
    """
    require_loopback(settings.auth, settings.http.host)
    if Role.EXTRACTOR in settings.roles and settings.extraction.ocr:
        await asyncio.to_thread(check_ocr, settings.extraction.ocr_languages)
    kafka, topics = settings.kafka, settings.kafka.topics
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(open_pool(settings.postgres))
        store = _open_store(settings.store, stack)
        await store.check()
        documents = PostgresDocuments(pool, topics, Quota(settings.quota.max_documents, settings.quota.max_bytes))
        producer = Producer(kafka)
        stack.push_async_callback(producer.close)
        webhooks = PostgresWebhooks(pool)
        endpoints = HttpEndpoints(
            allow_private=settings.webhooks.allow_private, timeout_s=settings.webhooks.timeout_s
        )
        stack.push_async_callback(endpoints.close)
        webhook_key = None
        if settings.webhooks.key is not None:
            webhook_key = settings.webhooks.key.get_secret_value().encode()
        consumers: list[Consumer] = []
        stop = asyncio.Event()
        workers = await stack.enter_async_context(asyncio.TaskGroup())
        stack.callback(stop.set)

        if Role.RELAY in settings.roles:
            relay = OutboxRelay(pool, settings.postgres, producer)
            workers.create_task(relay.run(stop))
        if Role.EXTRACTOR in settings.roles:
            extractor = ChildExtractor(
                settings.tokenizer,
                timeout=settings.extraction.timeout_s,
                memory_bytes=settings.extraction.memory_bytes,
                ocr_languages=settings.extraction.ocr_languages if settings.extraction.ocr else None,
                processes=settings.extraction.processes,
            )
            await extractor.warm()
            turns = Turns(
                settings.extraction.processes,
                large_bytes=settings.extraction.large_bytes,
                grow=extractor.warm_all,
                stop=stop,
            )
            document_events = DocumentEvents(documents, store, extractor, turns)
            consumer = Consumer(kafka, [topics.documents], kafka.group("extractor"), window=DOCUMENTS_WINDOW)
            consumers.append(consumer)
            workers.create_task(
                run_serial(
                    consumer,
                    document_events.handle,
                    producer,
                    concurrency=CONCURRENT_DOCUMENTS,
                    retry=settings.retry,
                    stop=stop,
                    on_dead=document_events.on_dead,
                )
            )
        if Role.RECORDS in settings.roles:
            record_events = RecordEvents(PostgresRecords(pool, topics), TextChunker(settings.tokenizer))
            consumer = Consumer(kafka, [topics.records], kafka.group("records"), window=RECORDS_WINDOW)
            consumers.append(consumer)
            workers.create_task(
                run_serial(
                    consumer,
                    record_events.handle,
                    producer,
                    concurrency=CONCURRENT_KEYS,
                    retry=settings.retry,
                    stop=stop,
                )
            )

        if Role.WEBHOOKS in settings.roles:
            policy = DeliveryPolicy(webhook_key, settings.webhooks.retry_s, settings.webhooks.in_flight)
            sender = WebhookSender(webhooks, endpoints, policy)
            workers.create_task(sender.run(stop))
            status_events = StatusEvents(webhooks, sender.wake)
            consumer = Consumer(kafka, [topics.status], kafka.group("webhooks"), window=STATUS_WINDOW)
            consumers.append(consumer)
            workers.create_task(
                run_serial(
                    consumer,
                    status_events.handle,
                    producer,
                    concurrency=CONCURRENT_KEYS,
                    retry=settings.retry,
                    stop=stop,
                )
            )

        if Role.COLLECTOR in settings.roles:
            orphans = settings.orphans
            orphan_policy = OrphanPolicy(orphans.grace_s, orphans.interval_s, orphans.max_count)
            collector = OrphanCollector(store, PostgresStorageKeys(pool), orphan_policy)
            stack.callback(workers.create_task(collector.run()).cancel)

        watches = Watches(WatchLimits(settings.events.max_streams, settings.events.max_streams_per_user))
        if Role.GATEWAY in settings.roles:
            listening = workers.create_task(
                listen_for_documents(settings.postgres, watches.changed, watches.changed_unheard)
            )
            stack.callback(listening.cancel)

        async def ready() -> dict[str, str]:
            return await _problems(pool, store, consumers)

        gateway = Gateway(
            authenticator=Authenticator(settings.auth),
            knowledge_bases=PostgresKnowledgeBases(pool, topics),
            channels=PostgresChannels(pool),
            documents=documents,
            store=store,
            embedding=await _open_embedding(settings, pool, stack),
            search=await _open_search(settings, stack),
            limits=UploadLimits(
                settings.upload.max_bytes, settings.upload.idle_timeout_s, settings.upload.max_files
            ),
            writable=settings.knowledge_bases_enabled,
            watches=watches,
            webhooks=webhooks,
            endpoints=endpoints,
            webhook_key=webhook_key,
            webhooks_per_user=settings.webhooks.per_user,
            ready=ready,
        )
        app = create_app(gateway, health_only=Role.GATEWAY not in settings.roles)
        if Role.GATEWAY in settings.roles:
            register = partial(grpc.register, outbox=PostgresRecordOutbox(pool, topics.records))
            server = await stack.enter_async_context(serve(settings.grpc, settings.auth, register, [grpc.SERVICE]))
            await server.set_serving(True)
        port = await stack.enter_async_context(serve_http(app, settings.http))
        stack.callback(watches.close)  # before the server waits for its requests to end
        yield port


def _open_store(settings: StoreSettings, stack: AsyncExitStack) -> ObjectStore:
    if settings.s3 is None:
        assert settings.directory is not None  # noqa: S101 - StoreSettings has checked it
        return DirectoryStore(settings.directory)
    s3 = S3Store(
        endpoint=settings.s3.endpoint,
        bucket=settings.s3.bucket,
        access_key=settings.s3.access_key,
        secret_key=settings.s3.secret_key.get_secret_value(),
        secure=settings.s3.secure,
        region=settings.s3.region,
        threads=settings.s3.threads,
    )
    stack.callback(s3.close)
    return s3


async def _open_embedding(settings: IngestSettings, pool: Pool, stack: AsyncExitStack) -> EmbeddingHealth:
    if settings.embedding is None:
        return EmbeddingHealth(pool, None, timeout_s=0)
    channel = await stack.enter_async_context(open_channel(settings.embedding))
    return EmbeddingHealth(pool, channel, timeout_s=settings.embedding.timeout_s)


async def _open_search(settings: IngestSettings, stack: AsyncExitStack) -> GrpcSearch | None:
    if settings.search is None:
        return None
    channel = await stack.enter_async_context(open_channel(settings.search))
    return GrpcSearch(channel, timeout_s=settings.search.timeout_s)


async def _problems(pool: Pool, store: ObjectStore, consumers: list[Consumer]) -> dict[str, str]:
    problems = {consumer.group: "not connected to the brokers" for consumer in consumers if not consumer.connected}
    try:
        async with connection(pool) as conn:
            await conn.execute("SELECT 1")
    except Unavailable as error:
        problems["database"] = error.detail
    try:
        await store.check()
    except Unavailable as error:
        problems["store"] = error.detail
    return problems
