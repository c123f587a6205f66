"""The schemes of targets, against real sockets: docs/channel.md."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import threading
from collections.abc import Iterator
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
    # The test may close the sockets, or the other direction may have ended.
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def relayed(listener: socket.socket, server: str) -> Iterator[None]:
    """Relays the first connection of ``listener`` to ``server``."""
    host, _, port = server.rpartition(":")
    with listener, socket.create_connection((host, int(port))) as onward:

        def serve() -> None:
            with listener.accept()[0] as client:
                threading.Thread(target=relay, args=(onward, client), daemon=True).start()
                relay(client, onward)

        threading.Thread(target=serve, daemon=True).start()
        yield


def check_reachable(target: str, resolved: bool) -> None:
    """Makes a call to ``target``, which is the channel's target or, with ``resolved``, what its resolver finds."""
    if resolved:
        resolver = penstock.Resolver()
        with penstock.Channel("orders.example", tls=False, resolver=resolver) as channel:
            resolver.push({"addresses": [{"address": target}]})
            assert channel.unary_unary(ECHO)(b"x") == b"x"
    else:
        with penstock.Channel(target, tls=False) as channel:
            assert channel.unary_unary(ECHO)(b"x") == b"x"


@pytest.mark.needs(reason=without_vsock)
def test_vsock(server: str) -> None:
    listener = listen_on_vsock()
    port = listener.getsockname()[1]
    with relayed(listener, server):
        check_reachable(f"vsock:1:{port}", resolved=False)


@pytest.mark.parametrize("resolved", [False, True])
@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a b", "a b"),
        ("a b", "a%20b"),
        ("100%", "100%25"),
        ("\u00e9", "%c3%A9"),
        ("me@home", "me@home"),
        ("tab\t", "tab\t"),
    ],
)
def test_unix_paths(server: str, tmp_path: pathlib.Path, name: str, written: str, resolved: bool) -> None:
    """A path may have blanks, and may be percent-encoded, as in a URI."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / name))
    listener.listen()
    with relayed(listener, server):
        check_reachable(f"unix:{tmp_path}/{written}", resolved)


@pytest.mark.parametrize("resolved", [False, True])
@pytest.mark.parametrize("scheme", ["unix-abstract", "Unix-Abstract"])
def test_abstract_names(server: str, scheme: str, resolved: bool) -> None:
    name = f"penstock {os.getpid()} {os.urandom(8).hex()}"
    for sent, written in ((f"{name}%", f"{name}%25"), (f"{name}\0", f"{name}%00".replace(" ", "%20"))):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("\0" + sent)
        listener.listen()
        with relayed(listener, server):
            check_reachable(f"{scheme}:{written}", resolved)


def without_ipv6() -> Optional[str]:
    """The reason why this machine can't run a test over IPv6; None if it can."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        socket.if_nametoindex("lo")
    except (AttributeError, OSError) as error:
        return f"the machine or this Python has no IPv6: {error}"
    return None


@pytest.mark.needs(reason=without_ipv6)
@pytest.mark.parametrize("resolved", [False, True])
@pytest.mark.parametrize("form", ["ipv6:[::1%25lo]:{}", "ipv6:[::1%lo]:{}", "IPv6:[::1%25{zone}]:{}", "[::1%lo]:{}"])
def test_zones(server: str, form: str, resolved: bool) -> None:
    listener = socket.socket(socket.AF_INET6)
    listener.bind(("::1", 0))
    listener.listen()
    target = form.format(listener.getsockname()[1], zone=socket.if_nametoindex("lo"))
    with relayed(listener, server):
        check_reachable(target, resolved)


def test_schemes_in_capitals(server: str) -> None:
    for scheme in ("IPV4:", "Dns:///", "PASSTHROUGH:///"):
        check_reachable(f"{scheme}{server}", resolved=False)


def test_a_vsock_without_a_server() -> None:
    """Whether or not the machine has vsocks, the call ends, and its error names the address that failed."""
    options = {"connect_timeout_ms": 500}
    with penstock.Channel("vsock:1:4000000000", tls=False, options=options) as channel:
        with pytest.raises(penstock.RpcError, match="could not connect to vsock:1:4000000000: ") as failure:
            channel.unary_unary(ECHO)(b"x", timeout=20)
        assert failure.value.code() is StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    "target",
    [
        "vsock:1",
        "vsock:1:2:3",
        "passthrough://other/a",
        "xds:///a",
        "unix:/a%2",
        "unix:/a%00",
        "ipv6:[::1%no-such]:1",
    ],
)
def test_wrong_targets(target: str) -> None:
    with pytest.raises(penstock.InvalidArgumentError, match="the target"):
        penstock.Channel(target, tls=False)
