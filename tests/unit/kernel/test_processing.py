from kbmesh.errors import Poison
from kbmesh.messaging import Message
from kbmesh.messaging.processing import _dead_letter


def dead_letter_of(key: bytes | None, value: bytes | None) -> tuple[bytes | None, bytes | None]:
    message = Message("t", 0, 7, 1, key, value, {})
    outgoing = _dead_letter(message, Poison("no"), 1)
    assert outgoing.topic == "t.dlq"
    return outgoing.key, outgoing.value


def test_key_and_value_of_a_dead_letter_are_those_of_the_message() -> None:
    assert dead_letter_of(b"k", b"v") == (b"k", b"v")
    assert dead_letter_of(b"k", None) == (b"k", None)
    assert dead_letter_of(None, b"v") == (None, b"v")


def test_a_dead_letter_has_at_least_an_empty_value_as_the_client_refuses_to_send_nothing() -> None:
    assert dead_letter_of(None, None) == (None, b"")
