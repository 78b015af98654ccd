import re
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, HttpUrl, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from kbmesh.auth import AuthSettings, is_loopback
from kbmesh.http import HttpSettings
from kbmesh.messaging import KafkaSettings, RetrySettings
from kbmesh.models import BUNDLED_MODEL, bundled_model_path
from kbmesh.postgres import PostgresSettings
from kbmesh.rpc import GrpcSettings


class ModelSettings(BaseModel):
    """A model, and where it runs."""

    model_config = ConfigDict(frozen=True)

    provider: Literal["torch", "openai", "off"] = "torch"
    """openai: behind `url`. off: nothing is encoded, the service reports that it is not serving."""
    path: Path | None = None
    """Folder of a sentence-transformers model; None: the one that is bundled."""
    name: str = ""
    """What spaces know it by; empty: the name of the folder. openai needs one."""
    dimensions: int | None = Field(None, ge=1, le=4000)
    """Of the first space of an empty database; None: all that the model has."""

    url: HttpUrl | None = None
    """What requests are posted to, for instance https://HOST/v1/embeddings. https, or this machine."""
    allow_http: bool = False
    """Key and texts may travel unencrypted to another machine."""
    api_key: SecretStr | None = None
    remote_name: str = ""
    """What the endpoint knows the model by; empty: `name`."""
    send_dimensions: bool = False
    """`dimensions` is asked for in each request; for models that can."""
    query_prompt: str = ""
    document_prompt: str = ""
    """What is put before a query or a document; a model of a folder brings its own."""
    batch_texts: int = Field(32, ge=1, le=2048)
    """In one request."""
    max_chars: int = Field(8000, ge=1)
    """Of a text, the rest is cut off: what the endpoint's model reads at most, if it refuses longer texts."""
    timeout_s: float = Field(30, gt=0)
    """Of one request."""
    requests_in_flight: int = Field(4, ge=1, le=256)

    @model_validator(mode="after")
    def _behind_an_endpoint(self) -> Self:
        if self.provider != "openai":
            return self
        if self.url is None or not self.name:
            raise ValueError("the provider openai needs URL and NAME")
        if self.url.username or self.url.password:
            raise ValueError("URL must not hold a user or password: set API_KEY")
        if self.url.scheme != "https" and not self.allow_http and not is_loopback(self.url.host or ""):
            raise ValueError("URL must begin with https:// or lead to this machine, unless ALLOW_HTTP is true")
        if self.api_key is not None and not re.fullmatch(r"[!-~]+", self.api_key.get_secret_value()):
            raise ValueError("API_KEY must be printable ASCII without spaces or line ends")
        if self.send_dimensions and self.dimensions is None:
            raise ValueError("SEND_DIMENSIONS needs DIMENSIONS")
        return self

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
        nested_model_default_partial_update=True,
        frozen=True,
    )

    postgres: PostgresSettings
    kafka: KafkaSettings
    auth: AuthSettings
    grpc: GrpcSettings = GrpcSettings(port=50052, max_deadline_s=120)
    """So long, for a space is checked with hundreds of queries before it is activated."""
    http: HttpSettings = HttpSettings(port=8082)
    retry: RetrySettings = RetrySettings()
    log_level: str = "info"

    # By a factory: else a path alone would go with the name of the model that is the default.
    model: ModelSettings = Field(default_factory=ModelSettings)
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

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        if self.next_model is not None and self.next_model.name == self.model.name:
            raise ValueError(f"MODEL and NEXT_MODEL are both called {self.model.name}: set NEXT_MODEL__NAME")
        return self

    @property
    def models(self) -> tuple[ModelSettings, ...]:
        """Those that can encode."""
        return tuple(one for one in (self.model, self.next_model) if one is not None and one.provider != "off")
