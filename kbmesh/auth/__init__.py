"""Who is asking: a principal from a JWT, for HTTP and gRPC alike."""

from kbmesh.auth.authenticator import Authenticator, AuthMode, AuthSettings, require_loopback
from kbmesh.auth.principal import LOCAL_PRINCIPAL, Principal

__all__ = ["LOCAL_PRINCIPAL", "AuthMode", "AuthSettings", "Authenticator", "Principal", "require_loopback"]
