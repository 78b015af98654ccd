from pydantic import NonNegativeInt
from pydantic_settings import BaseSettings, SettingsConfigDict

from kbmesh.auth import AuthSettings
from kbmesh.postgres import PostgresSettings
from kbmesh.rpc import ChannelSettings, GrpcSettings


class SearchSettings(BaseSettings):
    """Environment variables KBMESH_SEARCH_<NAME>, nested ones as KBMESH_SEARCH_POSTGRES__DSN."""

    model_config = SettingsConfigDict(
        frozen=True,
        env_prefix="KBMESH_SEARCH_",
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    postgres: PostgresSettings
    auth: AuthSettings
    grpc: GrpcSettings = GrpcSettings(port=50051)
    embedding: ChannelSettings = ChannelSettings(target="127.0.0.1:50052")
    skills: ChannelSettings | None = None
    """The skills service; without it assembled contexts have no skills, and say so."""
    query_cache_entries: NonNegativeInt = 1_000
    """Vectors of questions to remember, 12 kB each at 384 values; 0: none."""
    log_level: str = "info"
