import pickle

import pytest

from kbmesh import errors

ALL = {
    errors.KbmeshError: "internal",
    errors.InvalidArgument: "invalid_argument",
    errors.Unauthenticated: "unauthenticated",
    errors.PermissionDenied: "permission_denied",
    errors.NotFound: "not_found",
    errors.Conflict: "conflict",
    errors.PreconditionFailed: "precondition_failed",
    errors.TooLarge: "too_large",
    errors.UnsupportedType: "unsupported_type",
    errors.ResourceExhausted: "resource_exhausted",
    errors.DeadlineExceeded: "deadline_exceeded",
    errors.Unavailable: "unavailable",
    errors.Poison: "poison",
    errors.Misconfigured: "misconfigured",
}


def test_every_error_is_in_the_table() -> None:
    defined = {value for value in vars(errors).values() if isinstance(value, type)}
    assert set(ALL) == {kind for kind in defined if issubclass(kind, errors.KbmeshError)}


@pytest.mark.parametrize(("kind", "code"), ALL.items())
def test_codes_are_stable(kind: type[errors.KbmeshError], code: str) -> None:
    assert kind("what happened").code == code


def test_a_more_precise_code_replaces_the_default() -> None:
    error = errors.InvalidArgument("the file has no bytes", code="empty_file")
    assert (error.code, error.detail) == ("empty_file", "the file has no bytes")
    assert str(error) == "empty_file: the file has no bytes"
    assert errors.InvalidArgument("another").code == "invalid_argument"


@pytest.mark.parametrize("kind", ALL)
def test_an_error_survives_the_way_out_of_a_child_process(kind: type[errors.KbmeshError]) -> None:
    error = kind("the file is damaged", code="corrupt_file")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - bytes made one line above
    assert type(copy) is kind
    assert (copy.code, copy.detail, copy.args) == (error.code, error.detail, error.args)
