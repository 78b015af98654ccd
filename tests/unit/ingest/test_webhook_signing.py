import base64
import hashlib
import hmac

from services.ingest.domain.webhooks import headers, shown, signing_key


def test_the_signature_is_that_of_the_specification() -> None:
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'

    signed = headers([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)

    assert signed["webhook-id"] == "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert signed["webhook-timestamp"] == "1614265330"
    assert signed["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_each_of_several_secrets_signs_the_newest_first() -> None:
    arguments = ("msg_1", 1614265330, b"{}")
    new, old = (headers([secret], *arguments)["webhook-signature"] for secret in (b"new", b"old"))
    assert headers([b"new", b"old"], *arguments)["webhook-signature"] == f"{new} {old}"


def test_with_a_key_what_is_stored_does_not_sign() -> None:
    stored = bytes(range(32))

    assert signing_key(stored, None) == stored
    assert signing_key(stored, b"one") == hmac.new(b"one", stored, hashlib.sha256).digest()
    assert len({signing_key(stored, key) for key in (None, b"one", b"two")}) == 3
    assert shown(stored) == "whsec_" + base64.b64encode(stored).decode()
