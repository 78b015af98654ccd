"""The errors that a caller or an operator can act on, each with a code that is part of the contract."""

from typing import ClassVar, Final, Self


class KbmeshError(Exception):
    """Base of every error that is meant to be seen.

    `code` is snake_case and stable; `detail` is a sentence for a person and never holds document text.
    """

    default_code: ClassVar[str] = "internal"

    def __init__(self, detail: str, *, code: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or self.default_code

    def __reduce__(self) -> tuple[type[Self], tuple[str], dict[str, str]]:
        return type(self), (self.detail,), {"code": self.code}

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"


class InvalidArgument(KbmeshError):
    default_code = "invalid_argument"


class Unauthenticated(KbmeshError):
    default_code = "unauthenticated"


class PermissionDenied(KbmeshError):
    default_code = "permission_denied"


class NotFound(KbmeshError):
    default_code = "not_found"


class Conflict(KbmeshError):
    default_code = "conflict"


class PreconditionFailed(KbmeshError):
    """What the caller has seen is not the newest state."""

    default_code = "precondition_failed"


class TooLarge(KbmeshError):
    default_code = "too_large"


class UnsupportedType(KbmeshError):
    default_code = "unsupported_type"


class ResourceExhausted(KbmeshError):
    default_code = "resource_exhausted"


class DeadlineExceeded(KbmeshError):
    default_code = "deadline_exceeded"


class Unavailable(KbmeshError):
    """Something this process depends on does not answer. Trying again later is right."""

    default_code = "unavailable"


class Poison(KbmeshError):
    """A message that no number of tries will make processable."""

    default_code = "poison"


class Misconfigured(KbmeshError):
    """The process cannot start as it is set up; the detail says what to change."""

    default_code = "misconfigured"


TRANSIENT: Final = (Unavailable, OSError, TimeoutError)
"""An outage: what is being worked on has no part in it, and trying again later is right."""
