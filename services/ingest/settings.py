from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from kbmesh.auth import AuthSettings
from kbmesh.http import HttpSettings
from kbmesh.messaging import KafkaSettings, RetrySettings
from kbmesh.models import bundled_model_path
from kbmesh.postgres import PostgresSettings
from kbmesh.rpc import ChannelSettings, GrpcSettings

MIB = 1024 * 1024


class Role(StrEnum):
    """Parts of the service, which may run in one process or in several."""

    GATEWAY = "gateway"
    RELAY = "relay"
    EXTRACTOR = "extractor"
    RECORDS = "records"
    WEBHOOKS = "webhooks"
    COLLECTOR = "collector"


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True)


class S3Settings(_Group):
    endpoint: str
    """host:port, without a scheme."""
    bucket: str = "kbmesh"
    access_key: str
    secret_key: SecretStr
    secure: bool = True
    region: str = "us-east-1"
    threads: int = 16


class StoreSettings(_Group):
    """Exactly one of the two."""

    directory: Path | None = None
    s3: S3Settings | None = None

    @model_validator(mode="after")
    def _one(self) -> "StoreSettings":
        if (self.directory is None) == (self.s3 is None):
            raise ValueError("set either STORE__DIRECTORY or STORE__S3__ENDPOINT and its companions")
        return self


class UploadSettings(_Group):
    max_bytes: int = 200 * MIB
    idle_timeout_s: float = 30
    max_files: int = Field(100, ge=1)
    """Of one form."""


class QuotaSettings(_Group):
    """Of each owner, a user or a team, over all its knowledge bases; 0: no limit."""

    max_documents: int = Field(0, ge=0)
    max_bytes: int = Field(0, ge=0)


class ExtractionSettings(_Group):
    timeout_s: float = 300
    """Of one document. A PDF of 1,600 full pages takes two minutes on a slow core."""
    memory_bytes: int = 4096 * MIB
    """Of one process."""
    processes: int = Field(2, ge=1, le=64)
    """Files read at once. With two or more, one process is kept for files that are not large."""
    large_bytes: int = Field(MIB // 4, ge=1)
    """Size from which a file is large. Text packs well: a PDF of 300 pages may come to no more than this."""
    ocr: bool = False
    """Read the pages of a PDF that hold no text with tesseract, which must be installed then."""
    ocr_languages: str = Field("eng", pattern=r"^[\w/]+(\+[\w/]+)*$")
    """As tesseract names them, joined by +."""


class EventsSettings(_Group):
    """Streams of server-sent events that may be open at once."""

    max_streams: int = 256
    max_streams_per_user: int = 16


class WebhooksSettings(_Group):
    allow_private: bool = False
    """Send to addresses that are not public, and over http."""
    key: SecretStr | None = None
    """Signs together with the secret in the database. A change of it changes the secret of every webhook."""
    timeout_s: float = Field(10, gt=0, le=30)
    retry_s: tuple[float, ...] = (5, 30, 120, 600, 3600, 14400, 43200)
    """Pauses after failed attempts, give or take a fifth; one attempt more than pauses."""
    in_flight: int = 64
    per_user: int = 20


class OrphansSettings(_Group):
    """Objects in the store that no document points to."""

    grace_s: float = Field(86400, ge=3600)
    """How old one is when it is removed; longer than any upload takes."""
    interval_s: float = Field(3600, gt=0)
    max_count: int = Field(100, ge=0)
    """If there are more, none is removed."""


class IngestSettings(BaseSettings):
    """Environment variables KBMESH_INGEST_<FIELD>, with __ between a group and its field."""

    model_config = SettingsConfigDict(
        env_prefix="KBMESH_INGEST_",
        env_nested_delimiter="__",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    roles: frozenset[Role] = frozenset(Role)
    log_level: str = "info"
    http: HttpSettings = HttpSettings(port=8080)
    grpc: GrpcSettings = GrpcSettings(port=50054)
    """Of RecordsService, which the gateway serves."""
    auth: AuthSettings
    postgres: PostgresSettings
    kafka: KafkaSettings
    store: StoreSettings
    upload: UploadSettings = UploadSettings()
    quota: QuotaSettings = QuotaSettings()
    events: EventsSettings = EventsSettings()
    webhooks: WebhooksSettings = WebhooksSettings()
    orphans: OrphansSettings = OrphansSettings()
    extraction: ExtractionSettings = ExtractionSettings()
    retry: RetrySettings = RetrySettings()
    knowledge_bases_enabled: bool = True
    """False: what is there can be read and searched, and nothing can be changed."""
    embedding: ChannelSettings | None = None
    """The embedder, whose health uploads depend on then; without it an active embedding space is enough."""
    search: ChannelSettings | None = None
    """The search service, for the JSON routes; without it they answer 503."""
    tokenizer: Annotated[Path, Field(default_factory=lambda: bundled_model_path() / "tokenizer.json")]
    """tokenizer.json of the embedding model: chunks are measured in its tokens."""
