from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import ValidationError

from kbmesh.errors import Poison
from kbmesh.events.v1.chunks_pb2 import ChunksReady
from kbmesh.events.v1.status_pb2 import DocumentStatusChanged
from kbmesh.messaging import Message, headers_for
from kbmesh.models import bundled_model_path
from services.embedder.domain.chunks import ReadyChunks, Source
from services.embedder.entrypoints.kafka import read_message
from services.embedder.settings import EmbedderSettings, ModelSettings
from services.skills.settings import SkillsSettings

DOCUMENT_ID = "6F9619FF-8B86-D011-B42D-00C04FC964FF"
CHUNK_ID = str(uuid4())


def message(event: ChunksReady | DocumentStatusChanged) -> Message:
    headers = {name: value.encode() for name, value in headers_for(event, source="/test", subject="x").items()}
    return Message("chunks", 0, 0, 0, b"x", event.SerializeToString(), headers)


def test_a_message_names_its_source_and_chunks() -> None:
    event = ChunksReady(chunk_ids=[CHUNK_ID], kind="document_chunk", source_id=DOCUMENT_ID, revision=3)
    source = Source("document_chunk", DOCUMENT_ID.lower(), 3)
    assert read_message(message(event)) == ReadyChunks(source, (UUID(CHUNK_ID),))


def test_a_record_may_have_an_id_of_any_form() -> None:
    event = ChunksReady(chunk_ids=[CHUNK_ID], kind="skill_chunk", source_id="Skills/Forecast#2", revision=1)
    assert read_message(message(event)).source == Source("skill_chunk", "Skills/Forecast#2", 1)


@pytest.mark.parametrize(
    "event",
    [
        ChunksReady(kind="skill_chunk", source_id="a"),
        ChunksReady(chunk_ids=[CHUNK_ID] * 33, kind="skill_chunk", source_id="a"),
        ChunksReady(chunk_ids=["not an id"], kind="skill_chunk", source_id="a"),
        ChunksReady(chunk_ids=[CHUNK_ID], kind="document_chunk", source_id="not an id"),
        DocumentStatusChanged(document_id=DOCUMENT_ID),
    ],
    ids=["no chunk", "too many chunks", "bad chunk id", "bad document id", "another event"],
)
def test_a_message_that_cannot_be_meant_is_poison(event: ChunksReady | DocumentStatusChanged) -> None:
    with pytest.raises(Poison):
        read_message(message(event))


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "POSTGRES__DSN": "postgresql://localhost/kbmesh",
        "KAFKA__BOOTSTRAP_SERVERS": "localhost:9092",
        "AUTH__MODE": "off",
        "GRPC__PORT": "6000",
        "HTTP__HOST": "::1",
        "THREADS": "3",
    }.items():
        monkeypatch.setenv(f"KBMESH_EMBEDDER_{name}", value)
    settings = EmbedderSettings()
    assert (settings.grpc.port, settings.threads, settings.device) == (6000, 3, "auto")
    assert settings.grpc.max_deadline_s == 120
    assert (settings.http.host, settings.http.port) == ("::1", 8082)
    assert (settings.model.name, settings.model.folder) == ("all-MiniLM-L6-v2", bundled_model_path())

    monkeypatch.setenv("KBMESH_EMBEDDER_MODEL__PATH", "/models/bge-small-en")
    assert EmbedderSettings().model.name == "bge-small-en"
    monkeypatch.setenv("KBMESH_EMBEDDER_MODEL__NAME", "our-own")
    monkeypatch.setenv("KBMESH_EMBEDDER_NEXT_MODEL__NAME", "all-MiniLM-L6-v2")
    assert [model.name for model in EmbedderSettings().models] == ["our-own", "all-MiniLM-L6-v2"]
    monkeypatch.setenv("KBMESH_EMBEDDER_NEXT_MODEL__NAME", "our-own")
    with pytest.raises(ValidationError, match="NEXT_MODEL__NAME"):
        EmbedderSettings()


def test_an_address_without_a_port_keeps_the_port_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"POSTGRES__DSN": "postgresql:///", "AUTH__MODE": "off", "GRPC__HOST": "::1"}.items():
        for service in ("EMBEDDER", "SKILLS"):
            monkeypatch.setenv(f"KBMESH_{service}_{name}", value)
    monkeypatch.setenv("KBMESH_EMBEDDER_KAFKA__BOOTSTRAP_SERVERS", "localhost:9092")
    assert (EmbedderSettings().grpc.port, SkillsSettings().grpc.port) == (50052, 50053)


ENDPOINT: dict[str, Any] = {"provider": "openai", "name": "gte-large", "url": "https://host/v1/embeddings"}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"url": "http://localhost:8000/v1/embeddings"},
        {"url": "http://127.0.0.2/v1/embeddings"},
        {"url": "http://[::1]:8000/v1/embeddings"},
        {"url": "http://inside:8000/v1/embeddings", "allow_http": True},
        {"api_key": "sk-1", "send_dimensions": True, "dimensions": 256},
    ],
)
def test_an_endpoint_is_reached_over_https_or_on_this_machine(settings: dict[str, Any]) -> None:
    assert ModelSettings(**ENDPOINT | settings).name == "gte-large"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": None}, "needs URL and NAME"),
        ({"name": ""}, "needs URL and NAME"),
        ({"url": "http://host/v1/embeddings"}, "must begin with https"),
        ({"url": "http://127.0.0.1.nip.io/v1/embeddings"}, "must begin with https"),
        ({"url": "https://user:password@host/"}, "must not hold a user"),
        ({"api_key": "sk-1\n"}, "printable ASCII"),
        ({"api_key": ""}, "printable ASCII"),
        ({"send_dimensions": True}, "needs DIMENSIONS"),
    ],
)
def test_settings_of_an_endpoint_that_cannot_hold_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ModelSettings(**ENDPOINT | settings)
