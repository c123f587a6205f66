"""The schemes of targets, against real sockets: docs/channel.md."""

from __future__ import annotations

import socket
import threading
from typing import Optional

import pytest

import penstock
from penstock import StatusCode

ECHO = "/penstock.Echo/Unary"


def test_passthrough(server: str) -> None:
    with penstock.Channel(f"passthrough:///{server}", tls=False) as channel:
        assert channel.unary_unary(ECHO)(b"x") == b"x"


def test_several_addresses(server: str) -> None:
    """The first address has no server."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        dead = held.getsockname()[1]
        with penstock.Channel(f"ipv4:127.0.0.1:{dead},{server}", tls=False) as channel:
            assert channel.unary_unary(ECHO)(b"x") == b"x"


def listen_on_vsock() -> socket.socket:
    """A listening socket that the machine reaches at the CID 1 (VMADDR_CID_LOCAL). OSError: the kernel has no vsock
    sockets, or no loopback for them."""
    listener = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    try:
        listener.bind((socket.VMADDR_CID_ANY, socket.VMADDR_PORT_ANY))
        listener.listen()
        with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            probe.connect((1, listener.getsockname()[1]))
        listener.accept()[0].close()
    except OSError:
        listener.close()
        raise
    return listener


def without_vsock() -> Optional[str]:
    """The reason why this machine can't run a test over vsock; None if it can."""
    try:
        listen_on_vsock().close()
    except (AttributeError, OSError) as error:
        return f"the kernel has no loopback of vsock (CID 1): {error}"
    return None


def relay(source: socket.socket, sink: socket.socket) -> None:
    while True:
        data = source.recv(65536)
        if not data:
            break
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)


@pytest.mark.needs(reason=without_vsock)
def test_vsock(server: str) -> None:
    host, _, port = server.rpartition(":")
    with listen_on_vsock() as listener, socket.create_connection((host, int(port))) as onward:

        def serve() -> None:
            with listener.accept()[0] as client:
                threading.Thread(target=relay, args=(onward, client), daemon=True).start()
                relay(client, onward)

        threading.Thread(target=serve, daemon=True).start()
        with penstock.Channel(f"vsock:1:{listener.getsockname()[1]}", tls=False) as channel:
            assert channel.unary_unary(ECHO)(b"x") == b"x"


def test_a_vsock_without_a_server() -> None:
    """Whether or not the machine has vsocks, the call ends, and its error names the address that failed."""
    options = {"connect_timeout_ms": 500}
    with penstock.Channel("vsock:1:4000000000", tls=False, options=options) as channel:
        with pytest.raises(penstock.RpcError, match="could not connect to vsock:1:4000000000: ") as failure:
            channel.unary_unary(ECHO)(b"x", timeout=20)
        assert failure.value.code() is StatusCode.UNAVAILABLE


@pytest.mark.parametrize("target", ["vsock:1", "vsock:1:2:3", "passthrough://other/a", "xds:///a"])
def test_wrong_targets(target: str) -> None:
    with pytest.raises(penstock.InvalidArgumentError, match="the target"):
        penstock.Channel(target, tls=False)
