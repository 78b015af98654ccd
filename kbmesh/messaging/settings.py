import ssl
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from kbmesh.messaging.topics import Topics


class KafkaSettings(BaseModel):
    """How to reach the brokers, and the prefix of topics and groups. Times in seconds."""

    model_config = ConfigDict(frozen=True)

    bootstrap_servers: str
    topic_prefix: str = Field("kbmesh", pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    ssl_cafile: Path | None = None
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    request_timeout_s: float = 15
    session_timeout_s: float = 30
    group_instance_id: str | None = None
    """Static membership (KIP-345): a process that comes back under its name takes its partitions up at once, where
    the group would otherwise wait for the one that died. Unique to the process within its group."""
    max_poll_interval_s: float = 300
    probe_interval_s: float = 15
    """How often a consumer makes sure that the broker answers and that it still reads."""

    @property
    def topics(self) -> Topics:
        return Topics(self.topic_prefix)

    def group(self, name: str) -> str:
        """Consumer group of one role, for instance "kbmesh.extractor"."""
        return f"{self.topic_prefix}.{name}"

    def client_options(self) -> dict[str, Any]:
        """Keyword arguments that every aiokafka client takes."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "request_timeout_ms": int(self.request_timeout_s * 1000),
            "security_protocol": self.security_protocol,
            "ssl_context": self._ssl_context(),
            "sasl_mechanism": self.sasl_mechanism,
            "sasl_plain_username": self.sasl_username,
            "sasl_plain_password": self.sasl_password and self.sasl_password.get_secret_value(),
        }

    def _ssl_context(self) -> ssl.SSLContext | None:
        if "SSL" not in self.security_protocol.split("_"):
            return None
        return ssl.create_default_context(cafile=None if self.ssl_cafile is None else str(self.ssl_cafile))
