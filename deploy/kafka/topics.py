"""Creates the topics of `topics.yaml`: `python -m deploy.kafka.topics --bootstrap-servers HOST:PORT`."""

import argparse
import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code
from pydantic import BaseModel, ConfigDict, Field

from kbmesh.errors import KbmeshError, Unavailable
from kbmesh.messaging import KafkaSettings, Topics

TOPICS_FILE: Final = Path(__file__).with_name("topics.yaml")
TIMEOUT_S: Final = 60.0
BROKER_DEFAULT: Final = -1


class Layout(BaseModel):
    """Partitions and configuration of one topic."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    partitions: int = Field(gt=0)
    config: dict[str, str | int | float]


class Catalogue(BaseModel):
    """The contents of `topics.yaml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    topics: dict[str, Layout]
    dead_letter: Layout

    def by_name(self, topics: Topics, partitions: int | None = None) -> dict[str, Layout]:
        """Every topic under its full name; `partitions` replaces the counts of all but the dead letters."""
        override = {} if partitions is None else {"partitions": partitions}
        names = {getattr(topics, noun): layout.model_copy(update=override) for noun, layout in self.topics.items()}
        return names | {topics.dead_letter(name): self.dead_letter for name in names}


@dataclass(frozen=True, slots=True)
class Mismatch:
    topic: str
    wanted: int
    found: int

    def __str__(self) -> str:
        return f"{self.topic} has {self.found} partitions instead of {self.wanted}"


@dataclass(frozen=True, slots=True)
class Report:
    """What `ensure_topics` did, and what it found and left as it is."""

    created: tuple[str, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()


def load_catalogue(path: Path = TOPICS_FILE) -> Catalogue:
    return Catalogue.model_validate(yaml.safe_load(path.read_text()))


async def ensure_topics(
    settings: KafkaSettings, *, partitions: int | None = None, replication_factor: int = BROKER_DEFAULT
) -> Report:
    """Create the topics that are missing; existing ones are compared, never changed.

    Raises:
        Unavailable: the brokers do not answer, or refuse a topic.
    """
    wanted = load_catalogue().by_name(settings.topics, partitions)
    admin = AIOKafkaAdminClient(**settings.client_options())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await admin.start()
            found = {topic["topic"]: len(topic["partitions"]) for topic in await admin.describe_topics()}
            missing = {name: layout for name, layout in wanted.items() if name not in found}
            created = await _create(admin, missing, replication_factor)
    except (KafkaError, OSError) as error:
        raise Unavailable(f"topics cannot be created on {settings.bootstrap_servers}: {error}") from error
    finally:
        await admin.close()
    mismatches = [
        Mismatch(name, layout.partitions, found[name])
        for name, layout in wanted.items()
        if name in found and found[name] != layout.partitions
    ]
    return Report(created, tuple(mismatches))


async def _create(
    admin: AIOKafkaAdminClient, missing: dict[str, Layout], replication_factor: int
) -> tuple[str, ...]:
    if not missing:
        return ()
    new = [
        NewTopic(
            name,
            layout.partitions,
            replication_factor,
            # The client takes the broker's default factor only together with (no) assignments.
            replica_assignments={} if replication_factor == BROKER_DEFAULT else None,
            topic_configs={key: str(value) for key, value in layout.config.items()},
        )
        for name, layout in missing.items()
    ]
    response = await admin.create_topics(new)
    created = []
    for name, code, *message in response.topic_errors:
        # Another process that starts at the same time may have been first.
        if code == TopicAlreadyExistsError.errno:
            continue
        if code:
            raise for_code(code)(f"{name}: {next(iter(message), '')}")
        created.append(name)
    return tuple(created)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.kafka.topics", description="Create missing topics.")
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092", metavar="HOST:PORT")
    parser.add_argument("--prefix", default="kbmesh", help="first part of every topic name (kbmesh)")
    parser.add_argument("--partitions", type=int, help="instead of the counts in topics.yaml")
    parser.add_argument(
        "--replication-factor", type=int, default=BROKER_DEFAULT, help="instead of the brokers' default"
    )
    arguments = parser.parse_args()
    settings = KafkaSettings(bootstrap_servers=arguments.bootstrap_servers, topic_prefix=arguments.prefix)
    try:
        report = asyncio.run(
            ensure_topics(
                settings, partitions=arguments.partitions, replication_factor=arguments.replication_factor
            )
        )
    except KbmeshError as error:
        print(error.detail, file=sys.stderr)
        return 1
    for name in report.created:
        print(f"created {name}")
    for mismatch in report.mismatches:
        print(mismatch, file=sys.stderr)
    return 1 if report.mismatches else 0


if __name__ == "__main__":
    raise SystemExit(main())
