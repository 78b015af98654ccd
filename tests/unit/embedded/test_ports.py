import os
import socket

import pytest

from deploy.embedded.ports import LOOPBACK, free_ports, require_free
from kbmesh.errors import Misconfigured


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(20)

    assert len(set(ports)) == 20
    for port in ports:
        require_free(port, "--some-port")


def test_a_taken_port_is_reported_with_its_holder_and_the_flag_that_moves_it() -> None:
    with socket.socket() as holder:
        holder.bind((LOOPBACK, 0))
        holder.listen()
        port = holder.getsockname()[1]

        with pytest.raises(Misconfigured) as failure:
            require_free(port, "--http-port")

    assert failure.value.code == "port_taken"
    assert f"port {port} is taken by " in failure.value.detail
    assert f"(process {os.getpid()})" in failure.value.detail
    assert failure.value.detail.endswith("choose another with --http-port")


def test_a_port_that_was_just_closed_with_a_connection_on_it_counts_as_free() -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]
        with socket.create_connection((LOOPBACK, port)):
            listener.accept()[0].close()

    require_free(port, "--http-port")
