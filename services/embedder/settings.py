from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from kbmesh.auth import AuthSettings
from kbmesh.messaging import KafkaSettings, RetrySettings
from kbmesh.models import BUNDLED_MODEL, bundled_model_path
from kbmesh.postgres import PostgresSettings
from kbmesh.rpc import GrpcSettings


class EmbedderSettings(BaseSettings):
    """Read from KBMESH_EMBEDDER_*; parts of a part behind "__", as in KBMESH_EMBEDDER_POSTGRES__DSN."""

    model_config = SettingsConfigDict(
        env_prefix="KBMESH_EMBEDDER_",
        env_nested_delimiter="__",
        frozen=True,
        protected_namespaces=(),
    )

    postgres: PostgresSettings
    kafka: KafkaSettings
    auth: AuthSettings
    grpc: GrpcSettings = GrpcSettings(port=50052)
    retry: RetrySettings = RetrySettings()
    log_level: str = "info"

    model_path: Path | None = None
    """Folder of a sentence-transformers model; None: the one that is bundled."""
    model_name: str | None = None
    """Names the embedding space; None: the name of the folder. Another name is another space."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 on a GPU, and on a CPU where it is measured to be faster and as good."""
    threads: int | None = Field(None, ge=1)
    """For one matrix operation; None: one per core, or OMP_NUM_THREADS."""

    slice_size: int = Field(8, ge=1, le=256)
    """Texts in one call of the model; a query waits for one such call at most. Raise it on a GPU."""
    max_waiting_texts: int = Field(256, ge=32)
    """Of gRPC callers; more are refused with RESOURCE_EXHAUSTED."""

    batch_chunks: int = Field(32, ge=1, le=1024)
    linger_s: float = Field(0.05, ge=0)
    """How long a batch waits for more chunks after its first message."""
    batches_in_flight: int = Field(2, ge=1, le=16)
    """One is fetched or written while another is encoded."""

    @property
    def model_folder(self) -> Path:
        """Raises Misconfigured when no path is set and the bundled model is not installed."""
        return self.model_path or bundled_model_path()

    @property
    def model(self) -> str:
        return self.model_name or (self.model_path.resolve().name if self.model_path else BUNDLED_MODEL)
