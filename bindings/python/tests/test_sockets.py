"""The options of a channel for its sockets: docs/channel.md."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any, Callable, Dict, Iterator, Tuple

import pytest

import penstock
from helpers import unary
from penstock import Channel, StatusCode


@contextlib.contextmanager
def connection(options: Dict[str, Any], host: str = "127.0.0.1") -> Iterator[Tuple[socket.socket, socket.socket]]:
    """A connection of a channel with these options: the client's socket, and the server's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((host, 0))
        listener.listen()
        listener.settimeout(20)
        name = f"[{host}]" if ":" in host else host
        with Channel(f"{name}:{listener.getsockname()[1]}", tls=False, options=options) as channel:
            channel.connect()
            server, address = listener.accept()
            with server, found(lambda copy: copy.getsockname() == address and bool(copy.getpeername())) as client:
                yield client, server


@contextlib.contextmanager
def found(fits: Callable[[socket.socket], bool]) -> Iterator[socket.socket]:
    """A copy of the socket of this process that fits."""
    for name in os.listdir("/proc/self/fd"):
        # The descriptor of the folder itself is closed by now.
        path = f"/proc/self/fd/{name}"
        if not os.path.islink(path) or not os.readlink(path).startswith("socket:"):
            continue
        with socket.socket(fileno=os.dup(int(name))) as copy:
            try:
                if not fits(copy):
                    continue
            except OSError:
                continue
            yield copy
            return
    raise AssertionError("no socket fits")


@pytest.mark.parametrize("given", ["127.0.0.2", {"ipv4": "127.0.0.2"}, {"ipv4": "127.0.0.2", "ipv6": "::1"}])
def test_the_peer_sees_the_local_address(given: Any) -> None:
    with connection({"local_address": given}) as (client, server):
        assert server.getpeername()[0] == "127.0.0.2"
        assert client.getsockname()[0] == "127.0.0.2"


def test_a_local_address_of_ipv6() -> None:
    with connection({"local_address": {"ipv4": "127.0.0.2", "ipv6": "::1"}}, "::1") as (_client, server):
        assert server.getpeername()[0] == "::1"


def unavailable(target: str, options: Dict[str, Any]) -> str:
    with Channel(target, tls=False, options=options) as channel, pytest.raises(penstock.RpcError) as failure:
        unary(channel)
    assert failure.value.code() is StatusCode.UNAVAILABLE
    return failure.value.details()


def test_a_family_without_a_local_address(server: str) -> None:
    words = unavailable(server, {"local_address": "::1"})
    assert "the option local_address has no address of IPv4" in words


def test_an_address_of_another_machine(server: str) -> None:
    words = unavailable(server, {"local_address": "192.0.2.77"})
    assert "the option local_address: Cannot assign requested address" in words


def test_an_interface(server: str) -> None:
    words = unavailable(server, {"bind_interface": "no-such-device"})
    assert "the option bind_interface: No such device" in words
    try:
        with socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
    except PermissionError:
        assert "the option bind_interface: Operation not permitted" in unavailable(server, {"bind_interface": "lo"})
        return
    with connection({"bind_interface": "lo"}) as (client, _):
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0") == b"lo"


OPTIONS = {
    "tcp_nodelay": False,
    "send_buffer_bytes": 50_000,
    "receive_buffer_bytes": 60_000,
    "tcp_user_timeout_ms": 12_345,
    "tcp_keepalive_ms": 77_000,
    "traffic_class": 184,
    "others": [[socket.SOL_SOCKET, socket.SO_PRIORITY, 3], [socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5]],
}


def test_socket_options() -> None:
    with connection({"socket_options": OPTIONS}) as (client, _):
        tcp, own = socket.IPPROTO_TCP, socket.SOL_SOCKET
        assert client.getsockopt(tcp, socket.TCP_NODELAY) == 0
        assert client.getsockopt(own, socket.SO_SNDBUF) == 100_000
        assert client.getsockopt(own, socket.SO_RCVBUF) == 120_000
        assert client.getsockopt(tcp, socket.TCP_USER_TIMEOUT) == 12_345
        assert client.getsockopt(own, socket.SO_KEEPALIVE) == 1
        assert client.getsockopt(tcp, socket.TCP_KEEPIDLE) == 77
        assert client.getsockopt(tcp, socket.TCP_KEEPCNT) == 5
        assert client.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 184
        assert client.getsockopt(own, socket.SO_PRIORITY) == 3


def test_the_traffic_class_of_ipv6() -> None:
    with connection({"socket_options": {"traffic_class": 184}}, "::1") as (client, _):
        assert client.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS) == 184


def test_an_option_of_ipv6_leaves_sockets_of_ipv4() -> None:
    dontfrag = 62
    options = {"socket_options": {"others": [[socket.IPPROTO_IPV6, dontfrag, 1]]}}
    with connection(options, "::1") as (client, _):
        assert client.getsockopt(socket.IPPROTO_IPV6, dontfrag) == 1
    with connection(options) as (client, _):
        assert client.getpeername()[0] == "127.0.0.1"


def test_without_options() -> None:
    with connection({}) as (client, server):
        assert server.getpeername()[0] == "127.0.0.1"
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


def test_an_option_that_the_system_refuses(server: str) -> None:
    words = unavailable(server, {"socket_options": {"others": [[socket.SOL_SOCKET, 99_999, 1]]}})
    assert "the option socket_options.others: Protocol not available" in words


def test_calls_work_with_all_of_it(server: str) -> None:
    options = {"local_address": "127.0.0.2", "socket_options": OPTIONS}
    with Channel(server, tls=False, options=options) as channel:
        assert unary(channel) == b"x"


def test_a_unix_socket_has_only_the_buffers(tmp_path: Any) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(20)
        options = {"local_address": "127.0.0.2", "bind_interface": "no-such-device", "socket_options": OPTIONS}
        with Channel(f"unix:{path}", options=options) as channel:
            channel.connect()
            with listener.accept()[0], found(lambda copy: copy.getpeername() == path) as client:
                assert client.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 100_000
                assert client.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 120_000
                assert client.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) == 0
