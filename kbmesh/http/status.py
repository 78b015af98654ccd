"""Typed errors as HTTP answers, the counterpart of kbmesh.rpc.status."""

from typing import Final

from kbmesh import errors

_STATUSES: Final[dict[type[errors.KbmeshError], int]] = {
    errors.InvalidArgument: 400,
    errors.Unauthenticated: 401,
    errors.PermissionDenied: 403,
    errors.NotFound: 404,
    errors.DeadlineExceeded: 408,
    errors.Conflict: 409,
    errors.PreconditionFailed: 412,
    errors.TooLarge: 413,
    errors.UnsupportedType: 415,
    errors.ResourceExhausted: 429,
    errors.Unavailable: 503,
}
_RETRY_AFTER_S: Final = "5"


def status_of(error: errors.KbmeshError) -> int:
    return next((_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES), 500)


def headers_of(status: int) -> dict[str, str]:
    """Those that tell a client what to do about an answer with `status`."""
    if status == 401:
        return {"WWW-Authenticate": "Bearer"}
    return {"Retry-After": _RETRY_AFTER_S} if status in {429, 503} else {}
