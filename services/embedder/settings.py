from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from kbmesh.auth import AuthSettings
from kbmesh.messaging import KafkaSettings, RetrySettings
from kbmesh.models import BUNDLED_MODEL, bundled_model_path
from kbmesh.postgres import PostgresSettings
from kbmesh.rpc import GrpcSettings


class ModelSettings(BaseModel):
    """A model, and where it runs."""

    model_config = ConfigDict(frozen=True)

    provider: Literal["torch", "off"] = "torch"
    """off: nothing is encoded, the service reports that it is not serving."""
    path: Path | None = None
    """Folder of a sentence-transformers model; None: the one that is bundled."""
    name: str = ""
    """What spaces know it by; empty: the name of the folder."""
    dimensions: int | None = Field(None, ge=1, le=4000)
    """Of the first space of an empty database; None: all that the model has."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        if not self.name:
            # The way of pydantic for a default that depends on other fields of a frozen model.
            object.__setattr__(self, "name", self.path.resolve().name if self.path else BUNDLED_MODEL)
        return self

    @property
    def folder(self) -> Path:
        """Raises Misconfigured when no path is set and the bundled model is not installed."""
        return self.path or bundled_model_path()


class EmbedderSettings(BaseSettings):
    """Read from KBMESH_EMBEDDER_*; parts of a part behind "__", as in KBMESH_EMBEDDER_POSTGRES__DSN."""

    model_config = SettingsConfigDict(
        env_prefix="KBMESH_EMBEDDER_",
        env_nested_delimiter="__",
        frozen=True,
    )

    postgres: PostgresSettings
    kafka: KafkaSettings
    auth: AuthSettings
    grpc: GrpcSettings = GrpcSettings(port=50052)
    retry: RetrySettings = RetrySettings()
    log_level: str = "info"

    model: ModelSettings = ModelSettings()
    next_model: ModelSettings | None = None
    """A second one, so that a space can be changed for one of another model."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 on a GPU, and on a CPU where it is measured to be faster and as good."""
    threads: int | None = Field(None, ge=1)
    """For one matrix operation; None: one per core, or OMP_NUM_THREADS."""

    slice_size: int = Field(8, ge=1, le=256)
    """Texts in one call of the model; a query waits for one such call at most. Raise it on a GPU."""
    slice_tokens: int = Field(1024, ge=1)
    """Tokens in one call, padding included. Two texts of 512 keep a CPU as busy as eight do. Raise it on a GPU."""
    max_waiting_texts: int = Field(256, ge=32)
    """Of gRPC callers; more are refused with RESOURCE_EXHAUSTED."""

    batch_chunks: int = Field(32, ge=1, le=1024)
    linger_s: float = Field(0.05, ge=0)
    """How long a batch waits for more chunks after its first message."""
    batches_in_flight: int = Field(2, ge=1, le=16)
    """One is fetched or written while another is encoded."""

    @property
    def models(self) -> tuple[ModelSettings, ...]:
        """Those that can encode."""
        return tuple(one for one in (self.model, self.next_model) if one is not None and one.provider != "off")
