import asyncio
from uuid import uuid4

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from deploy.embedded.ports import LOOPBACK, free_ports
from deploy.kafka.topics import Mismatch, ensure_topics, load_catalogue
from kbmesh.errors import Unavailable
from kbmesh.messaging import KafkaSettings, Topics

pytestmark = pytest.mark.broker


@pytest.fixture
def fresh(kafka_bootstrap: str) -> KafkaSettings:
    """Settings whose topics do not exist yet."""
    return KafkaSettings(bootstrap_servers=kafka_bootstrap, topic_prefix=f"test-{uuid4().hex[:12]}")


async def test_every_topic_and_its_dead_letters_are_created_once(fresh: KafkaSettings) -> None:
    first = await ensure_topics(fresh, partitions=4)
    second = await ensure_topics(fresh, partitions=4)

    nouns = ("documents", "chunks", "records", "status")
    assert set(first.created) == {
        f"{fresh.topic_prefix}.{noun}.v1{dead}" for noun in nouns for dead in ("", ".dlq")
    }
    assert first.mismatches == ()
    assert (second.created, second.mismatches) == ((), ())


async def test_processes_that_start_together_do_not_get_in_the_way_of_one_another(fresh: KafkaSettings) -> None:
    reports = await asyncio.gather(*(ensure_topics(fresh, partitions=4) for _ in range(3)))

    assert sorted(name for report in reports for name in report.created) == sorted(
        load_catalogue().by_name(fresh.topics)
    )


async def test_another_partition_count_is_reported_and_left_alone(fresh: KafkaSettings) -> None:
    await ensure_topics(fresh, partitions=4)

    report = await ensure_topics(fresh)

    assert report.created == ()
    assert Mismatch(fresh.topics.documents, wanted=12, found=4) in report.mismatches
    assert len(report.mismatches) == 4


async def test_the_status_topic_is_compacted_and_the_others_expire(fresh: KafkaSettings) -> None:
    await ensure_topics(fresh, partitions=4)
    admin = AIOKafkaAdminClient(**fresh.client_options())
    await admin.start()
    try:
        policies = {}
        for topic in (fresh.topics.status, fresh.topics.documents):
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"cleanup.policy": None})
            [answer] = await admin.describe_configs([resource])
            policies[topic] = {entry[0]: entry[1] for entry in answer.resources[0][4]}["cleanup.policy"]
    finally:
        await admin.close()

    assert policies == {fresh.topics.status: "compact", fresh.topics.documents: "delete"}


async def test_a_broker_that_is_not_there_is_unavailable() -> None:
    [port] = free_ports(1)

    with pytest.raises(Unavailable, match="topics cannot be created"):
        await ensure_topics(KafkaSettings(bootstrap_servers=f"{LOOPBACK}:{port}"))


def test_production_gets_twelve_partitions_and_one_for_dead_letters() -> None:
    topics = Topics("kbmesh")

    layouts = load_catalogue().by_name(topics)

    assert {layouts[name].partitions for name in (topics.documents, topics.chunks, topics.records)} == {12}
    assert layouts["kbmesh.documents.v1.dlq"].partitions == 1
