"""Tokens, good and bad, and what an authenticator makes of them."""

import base64
import hashlib
import hmac
import json
import time
from typing import Any
from uuid import UUID

import jwt
import pytest

from kbmesh.auth import Authenticator
from kbmesh.errors import Unauthenticated

SECRET = "a secret of thirty-two bytes or more"
SUB, TEAM = UUID("5b0e3b5a-7a3e-4d58-9f0b-1d6e0f3c9a11"), UUID("c5ed0e7d-50a1-4878-bcb0-2ca59aa1c926")


def claims(**changes: Any) -> dict[str, Any]:
    """Good claims; a change to None leaves one out."""
    good = {
        "sub": str(SUB),
        "aud": "kbmesh",
        "exp": int(time.time()) + 300,
        "teams": [str(TEAM)],
        "roles": ["admin"],
    }
    return {name: value for name, value in (good | changes).items() if value is not None}


def token(key: Any = SECRET, algorithm: str = "HS256", **changes: Any) -> str:
    return "Bearer " + jwt.encode(claims(**changes), key, algorithm)


def hmac_token(header: object, payload: object, secret: bytes) -> str:
    """An HS256 token made by hand, as PyJWT refuses to make a bad one."""
    parts = [header, payload]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    signed = b".".join(encoded)
    signature = base64.urlsafe_b64encode(hmac.digest(secret, signed, hashlib.sha256)).rstrip(b"=")
    return "Bearer " + (signed + b"." + signature).decode()


async def refusal(authenticator: Authenticator, authorization: str | None) -> str:
    with pytest.raises(Unauthenticated) as caught:
        await authenticator.authenticate(authorization)
    return caught.value.code
