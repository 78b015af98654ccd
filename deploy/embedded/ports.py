"""Ports on the loopback interface."""

import socket
from contextlib import ExitStack
from typing import Final

import psutil

from kbmesh.errors import Misconfigured

LOOPBACK: Final = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """`count` different ports that nothing listens on at this moment."""
    with ExitStack() as stack:
        # All are held until the last one is known, so that none is given twice.
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind((LOOPBACK, 0))
        return [sock.getsockname()[1] for sock in sockets]


def require_free(port: int, flag: str) -> None:
    """Raise `Misconfigured` (code `port_taken`), naming the port, its holder and `flag`, unless `port` is free."""
    with socket.socket() as sock:
        # A server sets this too: without it a port counts as taken for a minute after its last connection.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((LOOPBACK, port))
            sock.listen(1)
        except PermissionError:
            raise Misconfigured(
                f"port {port} needs administrator rights, choose another with {flag}", code="port_taken"
            ) from None
        except OSError:
            raise Misconfigured(
                f"port {port} is taken by {_holder(port)}, choose another with {flag}", code="port_taken"
            ) from None


def _holder(port: int) -> str:
    try:
        for connection in psutil.net_connections(kind="tcp"):
            listens = connection.status == psutil.CONN_LISTEN and port in connection.laddr[1:]
            if listens and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    except psutil.Error:
        # Only an administrator may see the processes of others.
        pass
    return "another program"
