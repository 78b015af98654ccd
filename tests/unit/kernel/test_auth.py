import base64
import json
import time
from typing import Any
from uuid import UUID, uuid4

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from pydantic import SecretStr, ValidationError

from kbmesh.auth import LOCAL_PRINCIPAL, Authenticator, AuthMode, AuthSettings, Principal, require_loopback
from kbmesh.auth.authenticator import MAX_TOKEN_LENGTH
from kbmesh.errors import Misconfigured, Unauthenticated
from tests.support.tokens import SECRET, SUB, TEAM, claims, hmac_token, refusal, token

YEAR_2286 = 9_999_999_999


@pytest.fixture
def hs256() -> Authenticator:
    return Authenticator(AuthSettings(mode=AuthMode.HS256, secret=SecretStr(SECRET)))


async def test_a_good_token_proves_user_teams_and_roles(hs256: Authenticator) -> None:
    expected = Principal(SUB, frozenset({TEAM}), frozenset({"admin"}))
    assert await hs256.authenticate(token()) == expected


async def test_teams_and_roles_may_be_left_out(hs256: Authenticator) -> None:
    assert await hs256.authenticate(token(teams=None, roles=None)) == Principal(SUB)


async def test_the_scheme_is_read_in_any_case(hs256: Authenticator) -> None:
    assert (await hs256.authenticate(token().replace("Bearer", "bEARER"))).sub == SUB


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "x" * 100])
async def test_no_token_is_told_from_a_bad_one(hs256: Authenticator, authorization: str | None) -> None:
    assert await refusal(hs256, authorization) == "token_missing"


async def test_an_expired_token_is_refused_once_the_leeway_has_passed(hs256: Authenticator) -> None:
    assert (await hs256.authenticate(token(exp=int(time.time()) - 5))).sub == SUB
    assert await refusal(hs256, token(exp=int(time.time()) - 60)) == "token_expired"


@pytest.mark.parametrize(
    "changes",
    [
        {"nbf": YEAR_2286},
        {"iat": YEAR_2286},
        {"aud": "another service"},
        {"aud": None},
        {"exp": None},
        {"exp": "soon"},
        {"sub": None},
        {"sub": "alice"},
        {"sub": ""},
        {"teams": "not a list"},
        {"teams": {"a": 1}},
        {"teams": ["red"]},
        {"teams": [42]},
        {"teams": [[]]},
        {"roles": "admin"},
    ],
    ids=str,
)
async def test_claims_that_do_not_hold_are_refused(hs256: Authenticator, changes: dict[str, Any]) -> None:
    assert await refusal(hs256, token(**changes)) == "token_invalid"


async def test_the_length_of_a_token_bounds_the_number_of_teams(hs256: Authenticator) -> None:
    teams = [str(UUID(int=n)) for n in range(1_000)]
    assert len((await hs256.authenticate(token(teams=teams[:250]))).teams) == 250
    assert await refusal(hs256, token(teams=teams)) == "token_invalid"


async def test_a_subject_that_is_not_text_is_refused(hs256: Authenticator) -> None:
    forged = hmac_token({"alg": "HS256", "typ": "JWT"}, claims(sub=42), SECRET.encode())
    assert await refusal(hs256, forged) == "token_invalid"


async def test_another_secret_is_refused(hs256: Authenticator) -> None:
    assert await refusal(hs256, token("another secret, as long as the first")) == "token_invalid"


async def test_a_changed_payload_is_refused(hs256: Authenticator) -> None:
    header, _, signature = token().split(".")
    payload = base64.urlsafe_b64encode(json.dumps(claims(sub=str(uuid4()))).encode()).rstrip(b"=").decode()
    assert await refusal(hs256, f"{header}.{payload}.{signature}") == "token_invalid"


async def test_an_unsigned_token_is_refused(hs256: Authenticator) -> None:
    unsigned = jwt.encode(claims(), "", "none")
    assert await refusal(hs256, f"Bearer {unsigned}") == "token_invalid"


async def test_another_algorithm_is_refused_even_with_the_right_secret(hs256: Authenticator) -> None:
    long_enough = SECRET * 2
    authenticator = Authenticator(AuthSettings(mode=AuthMode.HS256, secret=SecretStr(long_enough)))
    assert await refusal(authenticator, token(long_enough, "HS512")) == "token_invalid"
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert await refusal(hs256, token(key, "RS256")) == "token_invalid"


@pytest.mark.parametrize(
    "garbage",
    ["abc", "a.b.c", "...", "e30.e30.", "\u00e4\u00f6.\u00fc.\u00df", "%00.%00.%00", "\ud800.a.b"],
)
async def test_garbage_is_refused(hs256: Authenticator, garbage: str) -> None:
    assert await refusal(hs256, f"Bearer {garbage}") == "token_invalid"


async def test_a_header_nested_without_end_is_refused(hs256: Authenticator) -> None:
    nested = base64.urlsafe_b64encode(b"[" * 12_000).rstrip(b"=").decode()
    assert await refusal(hs256, f"Bearer {nested}.e30.e30"[:MAX_TOKEN_LENGTH]) == "token_invalid"


async def test_a_huge_token_is_refused_unread(hs256: Authenticator) -> None:
    with pytest.raises(Unauthenticated, match="longer than") as caught:
        await hs256.authenticate("Bearer " + "a" * (MAX_TOKEN_LENGTH + 1))
    assert caught.value.code == "token_invalid"


async def test_an_issuer_is_checked_once_one_is_set(hs256: Authenticator) -> None:
    strict = Authenticator(
        AuthSettings(mode=AuthMode.HS256, secret=SecretStr(SECRET), issuer="https://login.example")
    )
    assert (await strict.authenticate(token(iss="https://login.example"))).sub == SUB
    assert await refusal(strict, token(iss="https://evil.example")) == "token_invalid"
    assert await refusal(strict, token()) == "token_invalid"
    assert (await hs256.authenticate(token(iss="https://anyone.example"))).sub == SUB


async def test_neither_token_nor_secret_is_told_in_the_error(hs256: Authenticator) -> None:
    with pytest.raises(Unauthenticated) as caught:
        await hs256.authenticate(token("another secret, as long as the first"))
    assert caught.value.detail == "the token is not valid"


@pytest.mark.parametrize("secret", [None, SecretStr(""), SecretStr("x" * 31)])
def test_a_weak_secret_is_refused(secret: SecretStr | None) -> None:
    with pytest.raises(ValidationError):
        AuthSettings(mode=AuthMode.HS256, secret=secret)


def test_a_key_server_mode_without_its_address_is_refused() -> None:
    with pytest.raises(ValidationError):
        AuthSettings(mode=AuthMode.JWKS)


def test_the_secret_is_not_printed() -> None:
    assert SECRET not in repr(AuthSettings(mode=AuthMode.HS256, secret=SecretStr(SECRET)))


async def test_with_authentication_off_everybody_is_the_local_user() -> None:
    authenticator = Authenticator(AuthSettings(mode=AuthMode.OFF))
    assert await authenticator.authenticate(None) == LOCAL_PRINCIPAL
    assert await authenticator.authenticate("Bearer whatever") == LOCAL_PRINCIPAL


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_authentication_may_be_off_on_loopback(host: str) -> None:
    require_loopback(AuthSettings(mode=AuthMode.OFF), host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "localhost.example.com", "*", "host"])  # noqa: S104
def test_authentication_may_not_be_off_where_others_can_reach_it(host: str) -> None:
    with pytest.raises(Misconfigured):
        require_loopback(AuthSettings(mode=AuthMode.OFF), host)
    require_loopback(AuthSettings(mode=AuthMode.HS256, secret=SecretStr(SECRET)), host)
