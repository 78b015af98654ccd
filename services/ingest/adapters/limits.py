"""Limits of a program that outlive this process: should it be killed, the program is ended all the same."""

import signal

_LIMITED = 'ulimit -t "$1" && shift && exec timeout -s KILL "$@"'
_ENDED = {code for number in (signal.SIGKILL, signal.SIGXCPU) for code in (-number, 128 + number)}


def limited(command: list[str], *, cpu_s: float, timeout_s: float) -> list[str]:
    """The command under both limits; it needs `timeout` of coreutils."""
    return ["/bin/sh", "-c", _LIMITED, "sh", str(cpu_s), str(timeout_s), *command]


def was_ended(returncode: int) -> bool:
    """Whether one of the limits ended it."""
    return returncode in _ENDED
