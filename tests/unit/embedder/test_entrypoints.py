from uuid import UUID, uuid4

import pytest

from kbmesh.errors import Poison
from kbmesh.events.v1.chunks_pb2 import ChunksReady
from kbmesh.events.v1.status_pb2 import DocumentStatusChanged
from kbmesh.messaging import Message, headers_for
from kbmesh.models import bundled_model_path
from services.embedder.domain.chunks import ReadyChunks, Source
from services.embedder.entrypoints.kafka import read_message
from services.embedder.settings import EmbedderSettings

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
    assert (settings.http.host, settings.http.port) == ("::1", 8082)
    assert (settings.model.name, settings.model.folder) == ("all-MiniLM-L6-v2", bundled_model_path())

    monkeypatch.setenv("KBMESH_EMBEDDER_MODEL__PATH", "/models/bge-small-en")
    assert EmbedderSettings().model.name == "bge-small-en"
    monkeypatch.setenv("KBMESH_EMBEDDER_MODEL__NAME", "our-own")
    monkeypatch.setenv("KBMESH_EMBEDDER_NEXT_MODEL__NAME", "all-MiniLM-L6-v2")
    assert [model.name for model in EmbedderSettings().models] == ["our-own", "all-MiniLM-L6-v2"]
