import asyncio
import ipaddress
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import jwt
from pydantic import BaseModel, ConfigDict, SecretStr, model_validator

from kbmesh.auth.principal import LOCAL_PRINCIPAL, Principal
from kbmesh.errors import Misconfigured, Unauthenticated, Unavailable

JWKS_TIMEOUT_S: Final = 5
JWKS_ALGORITHMS: Final = ["RS256", "ES256", "EdDSA"]
MAX_TOKEN_LENGTH: Final = 16_384
"""Bounds the number of teams too, to about 300."""


class AuthMode(StrEnum):
    OFF = "off"
    HS256 = "hs256"
    JWKS = "jwks"


class AuthSettings(BaseModel):
    """How tokens are checked. `off` makes every caller the local user and is refused beyond loopback."""

    model_config = ConfigDict(frozen=True)

    mode: AuthMode = AuthMode.HS256
    secret: SecretStr | None = None
    jwks_url: str | None = None
    audience: str = "kbmesh"
    issuer: str | None = None
    leeway_s: int = 30

    @model_validator(mode="after")
    def _complete(self) -> "AuthSettings":
        if self.mode is AuthMode.HS256 and (
            self.secret is None or len(self.secret.get_secret_value().encode()) < 32
        ):
            raise ValueError("auth mode hs256 needs a secret of at least 32 bytes (AUTH__SECRET)")
        if self.mode is AuthMode.JWKS and not self.jwks_url:
            raise ValueError("auth mode jwks needs AUTH__JWKS_URL")
        return self


class Authenticator:
    """Turns an Authorization header into a Principal."""

    def __init__(self, settings: AuthSettings) -> None:
        self._settings = settings
        self._jwks: jwt.PyJWKClient | None = None
        if settings.mode is AuthMode.JWKS and settings.jwks_url is not None:
            self._jwks = jwt.PyJWKClient(settings.jwks_url, timeout=JWKS_TIMEOUT_S)

    async def authenticate(self, authorization: str | None) -> Principal:
        """The caller that `authorization` ("Bearer <jwt>") proves.

        Raises:
            Unauthenticated: no token, or one that is malformed, expired, or signed by somebody else.
            Unavailable: the key server does not answer.
        """
        if self._settings.mode is AuthMode.OFF:
            return LOCAL_PRINCIPAL
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated("send 'Authorization: Bearer <token>'", code="token_missing")
        if len(token) > MAX_TOKEN_LENGTH:
            raise Unauthenticated(f"the token is longer than {MAX_TOKEN_LENGTH} characters", code="token_invalid")
        try:
            return _principal(await self._claims(token.strip()))
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("the token has expired", code="token_expired") from None
        except (jwt.PyJWKClientConnectionError, OSError) as error:
            raise Unavailable("the token key server does not answer", code="jwks_unavailable") from error
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise Unauthenticated("the token is not valid", code="token_invalid") from error

    async def _claims(self, token: str) -> dict[str, Any]:
        if self._jwks is not None:
            key: Any = (await asyncio.to_thread(self._jwks.get_signing_key_from_jwt, token)).key
            algorithms = JWKS_ALGORITHMS
        else:
            assert self._settings.secret is not None  # noqa: S101 - AuthSettings has checked it
            key, algorithms = self._settings.secret.get_secret_value(), ["HS256"]
        return jwt.decode(
            token,
            key,
            algorithms=algorithms,
            audience=self._settings.audience,
            issuer=self._settings.issuer,
            leeway=self._settings.leeway_s,
            options={"require": ["exp", "sub", "aud"]},
        )


def _principal(claims: dict[str, Any]) -> Principal:
    teams, roles = claims.get("teams", []), claims.get("roles", [])
    if not isinstance(teams, list) or not isinstance(roles, list):
        raise ValueError("teams and roles must be lists")
    return Principal(
        UUID(claims["sub"]), frozenset(UUID(str(team)) for team in teams), frozenset(str(role) for role in roles)
    )


def require_loopback(auth: AuthSettings, host: str) -> None:
    """Refuses a server without authentication on an address that others can reach.

    Raises:
        Misconfigured: auth is off and `host` is not a loopback address.
    """
    if auth.mode is AuthMode.OFF and not is_loopback(host):
        raise Misconfigured(f"auth is off, so the server may bind to loopback only, not to {host}")


def is_loopback(host: str) -> bool:
    """Whether a name or address leads to this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
