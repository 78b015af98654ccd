"""Who is asking: a principal from a JWT, for HTTP and gRPC alike."""

from kbmesh.auth.authenticator import Authenticator, AuthMode, AuthSettings, is_loopback, require_loopback
from kbmesh.auth.principal import LOCAL_PRINCIPAL, Principal

__all__ = [
    "LOCAL_PRINCIPAL",
    "AuthMode",
    "AuthSettings",
    "Authenticator",
    "Principal",
    "is_loopback",
    "require_loopback",
]
