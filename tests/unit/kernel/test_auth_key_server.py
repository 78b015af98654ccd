import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from pydantic import SecretStr

from kbmesh.auth import Authenticator, AuthMode, AuthSettings
from kbmesh.errors import Unavailable
from tests.support.tokens import SECRET, SUB, TEAM, claims, hmac_token, refusal, token

PRIVATE_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PUBLIC_PEM = PRIVATE_KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


@dataclass
class KeyServer:
    url: str
    body: bytes = b""
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def key_server() -> Iterator[KeyServer]:
    key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(PRIVATE_KEY.public_key()))
    jwks = json.dumps({"keys": [key | {"kid": "k1", "use": "sig", "alg": "RS256"}]}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(state.body)))
            self.end_headers()
            self.wfile.write(state.body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        state = KeyServer(f"http://127.0.0.1:{server.server_port}/jwks", jwks)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        server.shutdown()
        thread.join()


def rs256(kid: str | None = "k1", key: Any = PRIVATE_KEY, **changes: Any) -> str:
    return "Bearer " + jwt.encode(claims(**changes), key, "RS256", headers={"kid": kid} if kid else None)


def by_key_server(key_server: KeyServer) -> Authenticator:
    return Authenticator(AuthSettings(mode=AuthMode.JWKS, jwks_url=key_server.url))


async def test_a_token_signed_by_a_published_key_is_good(key_server: KeyServer) -> None:
    authenticator = by_key_server(key_server)
    assert (await authenticator.authenticate(rs256())).sub == SUB
    assert (await authenticator.authenticate(rs256())).teams == {TEAM}
    assert len(key_server.asked) == 1


async def test_a_key_that_is_not_published_is_refused_without_a_storm_of_questions(key_server: KeyServer) -> None:
    authenticator = by_key_server(key_server)
    for n in range(20):
        assert await refusal(authenticator, rs256(f"unknown {n}")) == "token_invalid"
    assert len(key_server.asked) <= 2


async def test_a_token_signed_by_somebody_else_under_a_published_name_is_refused(key_server: KeyServer) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert await refusal(by_key_server(key_server), rs256(key=other)) == "token_invalid"


async def test_a_public_key_is_not_taken_for_a_shared_secret(key_server: KeyServer) -> None:
    forged = hmac_token({"alg": "HS256", "typ": "JWT", "kid": "k1"}, claims(), PUBLIC_PEM)
    assert await refusal(by_key_server(key_server), forged) == "token_invalid"


async def test_an_unsigned_token_is_refused_in_the_name_of_a_published_key(key_server: KeyServer) -> None:
    unsigned = jwt.encode(claims(), "", "none", headers={"kid": "k1"})
    assert await refusal(by_key_server(key_server), f"Bearer {unsigned}") == "token_invalid"


async def test_expiry_and_audience_hold_with_a_key_server_too(key_server: KeyServer) -> None:
    authenticator = by_key_server(key_server)
    assert await refusal(authenticator, rs256(exp=int(time.time()) - 60)) == "token_expired"
    assert await refusal(authenticator, rs256(aud="another")) == "token_invalid"


async def test_a_silent_key_server_is_an_outage_not_a_bad_token(key_server: KeyServer, unused_port: int) -> None:
    down = AuthSettings(mode=AuthMode.JWKS, jwks_url=f"http://127.0.0.1:{unused_port}/jwks")
    with pytest.raises(Unavailable) as caught:
        await Authenticator(down).authenticate(rs256())
    assert caught.value.code == "jwks_unavailable"


async def test_the_address_of_a_key_server_changes_nothing_in_another_mode(key_server: KeyServer) -> None:
    settings = AuthSettings(mode=AuthMode.HS256, secret=SecretStr(SECRET), jwks_url=key_server.url)
    assert (await Authenticator(settings).authenticate(token())).sub == SUB
    assert await refusal(Authenticator(settings), rs256()) == "token_invalid"
    assert key_server.asked == []


@pytest.fixture
def unused_port() -> int:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        return server.server_port
