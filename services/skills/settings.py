from pydantic_settings import BaseSettings, SettingsConfigDict

from kbmesh.auth import AuthSettings
from kbmesh.postgres import PostgresSettings
from kbmesh.rpc import ChannelSettings, GrpcSettings


class SkillsSettings(BaseSettings):
    """Read from KBMESH_SKILLS_*, for instance KBMESH_SKILLS_POSTGRES__DSN."""

    model_config = SettingsConfigDict(
        env_prefix="KBMESH_SKILLS_",
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
        frozen=True,
    )

    postgres: PostgresSettings
    auth: AuthSettings
    grpc: GrpcSettings = GrpcSettings(port=50053)
    embedding: ChannelSettings | None = None
    """Without one, questions have no say in which chunks come first."""
    log_level: str = "info"

    topic_prefix: str = "kbmesh"
    """As KAFKA__TOPIC_PREFIX of the other services; this one writes to the outbox and never to a broker."""
