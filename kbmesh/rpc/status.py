"""Typed errors as gRPC statuses: the code as a google.rpc.ErrorInfo, so that clients need not read sentences."""

from typing import Final, cast

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from kbmesh import errors

DOMAIN: Final = "kbmesh"

_CODES: Final[dict[type[errors.KbmeshError], int]] = {
    errors.InvalidArgument: code_pb2.INVALID_ARGUMENT,
    errors.TooLarge: code_pb2.INVALID_ARGUMENT,
    errors.UnsupportedType: code_pb2.INVALID_ARGUMENT,
    errors.Unauthenticated: code_pb2.UNAUTHENTICATED,
    errors.PermissionDenied: code_pb2.PERMISSION_DENIED,
    errors.NotFound: code_pb2.NOT_FOUND,
    errors.Conflict: code_pb2.ABORTED,
    errors.PreconditionFailed: code_pb2.FAILED_PRECONDITION,
    errors.Misconfigured: code_pb2.FAILED_PRECONDITION,
    errors.ResourceExhausted: code_pb2.RESOURCE_EXHAUSTED,
    errors.DeadlineExceeded: code_pb2.DEADLINE_EXCEEDED,
    errors.Unavailable: code_pb2.UNAVAILABLE,
}

_KINDS: Final[dict[grpc.StatusCode, type[errors.KbmeshError]]] = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidArgument,
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.ABORTED: errors.Conflict,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.ResourceExhausted,
    # To the caller of this process a late answer of the service behind it is one that did not come.
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.Unavailable,
    grpc.StatusCode.UNAVAILABLE: errors.Unavailable,
}


def to_status(error: errors.KbmeshError) -> grpc.Status:
    """The status to abort a call with."""
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=reason_for(error), domain=DOMAIN))
    status: grpc.Status = rpc_status.to_status(
        status_pb2.Status(code=code_for(error), message=error.detail, details=[detail])
    )
    return status


def code_for(error: errors.KbmeshError) -> int:
    """A google.rpc.Code."""
    code: int = _CODES.get(type(error), code_pb2.INTERNAL)
    return code


def reason_for(error: errors.KbmeshError) -> str:
    """The code of the error, as an ErrorInfo has it."""
    return error.code.upper()


def reason(error: grpc.Call | grpc.aio.AioRpcError) -> str | None:
    """The error code that a server of this project put into `error`, in upper case; None if there is none."""
    status = rpc_status.from_call(cast("grpc.Call", error))  # all that it asks, both have
    for detail in status.details if status is not None else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            return str(info.reason)
    return None


def to_error(error: grpc.aio.AioRpcError, service: str) -> errors.KbmeshError:
    """What a call of `service` in the name of somebody else ended with, for that caller: with the code of the
    service, or "<service>_unavailable" where nobody answered."""
    kind = _KINDS.get(error.code(), errors.KbmeshError)
    code = reason(error)
    if code is not None:
        return kind(error.details() or "", code=code.lower())
    # Not from a server of this project: its words may name addresses.
    if kind is errors.Unavailable:
        return kind(f"the {service} service does not answer", code=f"{service}_unavailable")
    return kind(f"the {service} service refused the call")
