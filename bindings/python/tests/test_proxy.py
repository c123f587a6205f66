"""Channels whose connections go through a proxy of HTTP or of SOCKS 5: docs/channel.md, "Proxies"."""

from __future__ import annotations

import http.server
import socket
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

import penstock
import penstock.grpc
from helpers import bidi, eventually, unary
from penstock import StatusCode
from proxy_server import Proxy, answering, endpoints

# A name that no look-up finds: only the proxy knows it.
NAME = "echo.invalid"
SCHEMES = ("http", "socks5h")


def through(
    proxy: Proxy, target: str, scheme: str = "http", user: str = "", tls: Any = False, **options: Any
) -> penstock.Channel:
    login = f"{user}@" if user else ""
    return penstock.Channel(target, tls=tls, options={"proxy": f"{scheme}://{login}{proxy.address}", **options})


def failure(proxy: Proxy, scheme: str = "http", user: str = "", **options: Any) -> str:
    """The text of a call that fails because of the proxy."""
    options.setdefault("backoff_jitter", 0)
    with through(proxy, f"{NAME}:1", scheme, user, **options) as channel:
        return error(channel)


def error(channel: penstock.Channel) -> str:
    with pytest.raises(penstock.RpcError) as caught:
        unary(channel, timeout=20)
    assert caught.value.code() is StatusCode.UNAVAILABLE
    details = caught.value.details()
    assert details is not None
    assert "secret" not in details
    return details


@pytest.mark.parametrize("bytewise", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_proxy_looks_the_name_up(server: str, scheme: str, bytewise: bool) -> None:
    with Proxy({NAME: server}, bytewise=bytewise) as proxy:
        for _ in range(3):
            with through(proxy, f"{NAME}:77", scheme) as channel:
                assert unary(channel) == b"x"
                assert bidi(channel, [b"1", b"2" * 300_000]) == [b"1", b"2" * 300_000]
        assert proxy.asked == [f"{'CONNECT' if scheme == 'http' else 'SOCKS'} {NAME}:77"] * 3


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tls_goes_through_the_proxy_to_the_server(servers: Dict[str, str], certificates: Path, scheme: str) -> None:
    """The certificate that is checked is the server's, for its own name."""
    tls = {"roots_file": str(certificates / "ca.pem")}
    with Proxy({"localhost": servers["tls"], NAME: servers["tls"]}) as proxy:
        with through(proxy, "localhost:443", scheme, tls=tls) as channel:
            assert unary(channel) == b"x"
        assert "mismatch" in failure(proxy, scheme, tls=tls)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_user_and_a_password(server: str, scheme: str) -> None:
    with Proxy({NAME: server}, user="some one:secret%/") as proxy:
        with through(proxy, f"{NAME}:1", scheme, "some%20one:secret%25%2f") as channel:
            assert unary(channel) == b"x"
        without = failure(proxy, scheme)
        wrong = failure(proxy, scheme, "some%20one:secret")
        assert "URL has no user" in without
        assert "did not accept the user" in wrong
        if scheme == "http":
            assert "407 Proxy Authentication Required" in without
        else:
            with Proxy(script=answering(b"\x05\xff")) as other:
                assert "takes no user with a password" in failure(other, scheme, "some:secret")


def test_the_client_looks_the_name_up_for_socks5(server: str) -> None:
    """With "socks5", unlike "socks5h"."""
    with Proxy() as proxy:
        port = endpoints(server)[1]
        with through(proxy, f"localhost:{port}", "socks5") as channel:
            assert unary(channel) == b"x"
        assert f"SOCKS 127.0.0.1:{port}" in proxy.asked
        with through(proxy, f"{NAME}:1", "socks5") as channel:
            assert "does not resolve" in error(channel)


@pytest.mark.parametrize("scheme", ["http", "socks5", "socks5h"])
def test_a_target_of_addresses(server: str, scheme: str) -> None:
    """Each of the addresses is reached through the proxy; the first has no server."""
    with socket.socket() as held, Proxy() as proxy:
        held.bind(("127.0.0.1", 0))
        dead = held.getsockname()[1]
        with through(proxy, f"ipv4:127.0.0.1:{dead},{server}", scheme) as channel:
            assert unary(channel) == b"x"
        assert [one.split(" ")[1] for one in proxy.asked] == [f"127.0.0.1:{dead}", server]
        with through(proxy, server, scheme) as channel:
            assert unary(channel) == b"x"


def test_a_resolver_of_the_program(server: str) -> None:
    """Its addresses are reached through the proxy, but a unix socket is not."""

    class Given(penstock.Resolver):
        def __init__(self, address: str) -> None:
            self.address = address

        def resolve(self) -> None:
            self.push({"addresses": [{"address": self.address}]})

    with Proxy() as proxy:
        options = {"proxy": f"http://{proxy.address}"}
        with penstock.Channel(f"{NAME}:1", tls=False, options=options, resolver=Given(server)) as channel:
            assert unary(channel, wait_for_ready=True, timeout=20) == b"x"
        assert proxy.asked == [f"CONNECT {server}"]
        local = Given("unix:/nobody/listens/here")
        with penstock.Channel(f"{NAME}:1", tls=False, options=options, resolver=local) as channel:
            assert "unix:/nobody/listens/here: No such file" in error(channel)
        assert len(proxy.asked) == 1


@pytest.mark.parametrize("has_proxy", [False, True])
def test_a_resolver_that_fails_in_between(server: str, has_proxy: bool) -> None:
    """Servers that come after a failure are used at once, through a proxy as without one."""
    pushed = penstock.Resolver()
    with Proxy() as proxy:
        options = {"proxy": f"http://{proxy.address}" if has_proxy else None, "initial_backoff_ms": 86_400_000}
        with penstock.Channel(f"{NAME}:1", tls=False, options=options, resolver=pushed) as channel:
            pushed.push({"error": "no servers"})
            assert "no servers" in error(channel)
            pushed.push({"addresses": [{"address": server}]})
            assert unary(channel, timeout=20, wait_for_ready=True) == b"x"
            # The last good servers stay until others come.
            pushed.push({"error": "no servers"})
            assert unary(channel, timeout=20) == b"x"
            pushed.push({"addresses": [{"address": "unix:/nobody/listens/here"}]})
            eventually(lambda: refuses(channel))


def refuses(channel: penstock.Channel) -> bool:
    """Whether the channel has the unix socket on which nobody listens."""
    try:
        unary(channel, timeout=20)
    except penstock.RpcError as caught:
        return "unix:/nobody/listens/here" in str(caught)
    return False


def test_names_that_need_no_proxy(server: str) -> None:
    port = endpoints(server)[1]
    with Proxy({NAME: server, "localhost": server}) as proxy:
        for target, exceptions in (
            (f"localhost:{port}", ["LOCALHOST"]),
            (f"localhost:{port}", ["example", "*"]),
            (server, ["10.0.0.0/8", "127.0.0.0/8"]),
            (server, ["127.0.0.1"]),
            (server, [f"127.0.0.1:{port}"]),
            (f"localhost:{port}", [f"localhost:{port}"]),
            (f"[::ffff:127.0.0.1]:{port}", ["127.0.0.0/8"]),
            (f"ipv4:127.0.0.1:{port}", ["[::ffff:127.0.0.1]"]),
        ):
            with through(proxy, target, no_proxy=exceptions) as channel:
                assert unary(channel) == b"x"
        assert proxy.asked == []
        for target, exceptions in (
            (f"localhost:{port}", ["host", "127.0.0.1", "alhost"]),
            (f"a.{NAME}:1", ["b.invalid"]),
            (server, ["10.0.0.0/8", "127.0.0.2/32", "localhost", "::1", "127.0.0.1:1"]),
        ):
            proxy.names[f"a.{NAME}"] = server
            with through(proxy, target, no_proxy=exceptions) as channel:
                assert unary(channel) == b"x"
        assert len(proxy.asked) == 3
    for entry in ("127.0.0.1/x", "10.0.0.0/33", "a b", "", 7):
        with pytest.raises(penstock.Error, match=r"\$\.no_proxy\[0\]: expected a host"):
            penstock.Channel("a:1", options={"no_proxy": [entry]})


def test_each_address_of_a_target_may_need_a_proxy(server: str) -> None:
    port = endpoints(server)[1]
    with socket.socket() as held, Proxy({"127.0.0.9": server}) as proxy:
        held.bind(("127.0.0.1", 0))
        dead = held.getsockname()[1]
        # Nobody listens at the first address, and only the proxy reaches the second.
        with through(proxy, f"ipv4:127.0.0.1:{dead},127.0.0.9:{port}", no_proxy=["127.0.0.1"]) as channel:
            assert unary(channel, timeout=20) == b"x"
        assert proxy.asked == [f"CONNECT 127.0.0.9:{port}"]


def test_the_environment_is_asked_only_by_option(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy", "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with Proxy({NAME: server}) as proxy:

        def calls(target: str = f"{NAME}:1", **options: Any) -> bool:
            """Whether a call went through the proxy."""
            before = len(proxy.asked)
            with penstock.Channel(target, tls=False, options=options) as channel:
                assert unary(channel, timeout=20) == b"x"
            return len(proxy.asked) > before

        monkeypatch.setenv("http_proxy", f"http://{proxy.address}")
        assert not calls(server)
        assert calls(proxy="environment")
        assert not calls(server, proxy="environment", no_proxy=["127.0.0.1"])
        monkeypatch.setenv("no_proxy", "example.com, 127.0.0.0/8")
        assert not calls(server, proxy="environment")
        monkeypatch.setenv("no_grpc_proxy", "example.com")
        assert calls(server, proxy="environment")
        monkeypatch.setenv("grpc_proxy", f"socks5h://{proxy.address}")
        assert calls(proxy="environment")
        assert proxy.asked[-1].startswith("SOCKS")
        monkeypatch.setenv("grpc_proxy", proxy.address)
        assert calls(proxy="environment")
        assert proxy.asked[-1].startswith("CONNECT")
        monkeypatch.setenv("grpc_proxy", "ftp://a:secret@b")
        with pytest.raises(penstock.Error, match='the environment variable "grpc_proxy" is no proxy') as caught:
            calls(proxy="environment")
        assert "secret" not in str(caught.value)
        monkeypatch.delenv("grpc_proxy")
        monkeypatch.delenv("http_proxy")
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.address}")
        monkeypatch.setenv("https_proxy", f"http://{proxy.address}")
        assert not calls(server, proxy="environment", no_proxy=[])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            b"HTTP/1.1 503 Service Unavailable\r\n\r\n",
            "refused to connect to echo.invalid:1: 503 Service Unavailable",
        ),
        (b"HTTP/1.1 301 Moved\r\nlocation: /\r\n\r\n", "301 Moved"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", 'does not answer in HTTP/1: "SSH-2.0-OpenSSH"'),
        (b"HTTP/1.1 xyz\r\n\r\n", "does not answer in HTTP/1"),
        (b"HTTP/1.1 2zz OK\r\n\r\n", "does not answer in HTTP/1"),
        (b"HTTP/1.1 2000\r\n\r\n", "does not answer in HTTP/1"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "refused to connect to echo.invalid:1: 101 Switching"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 20_000 + b"\r\n\r\n", "more than 16384 bytes of header"),
        (b"HTTP/1.1 102 Wait\r\n\r\n" * 1000, "more than 16384 bytes of header"),
        (b"HTTP/1.1 200 OK\r\n", "closed by peer during the CONNECT"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 20_000, "more than 16384 bytes of header"),
        (b"", "closed by peer during the CONNECT"),
    ],
)
def test_what_a_proxy_of_http_may_answer(answer: bytes, words: str) -> None:
    with Proxy(script=answering(answer)) as proxy:
        assert words in failure(proxy)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "does not speak SOCKS version 5"),
        ((b"\x05\x01",), "lets nobody in without a login"),
        ((b"\x05",), "closed by peer during the dialogue with the SOCKS proxy"),
        *(
            ((b"\x05\x00\x05" + bytes([code]) + b"\x00\x01" + bytes(6),), f"to connect to echo.invalid:1: {words}")
            for code, words in ((1, "general"), (2, "its rules"), (5, "connection refused"), (99, "for a reason"))
        ),
        ((b"\x05\x00\x05\x05",), "connection refused"),
        ((b"\x05\x00\x05\x00\x00\x09\x00\x00",), "an address of an unknown type"),
        ((b"\x05\x00\x04\x00\x00\x01" + bytes(6),), "does not speak SOCKS version 5"),
        ((b"\x05\x00\x05\x00\x00\x01\x00",), "closed by peer during the dialogue with the SOCKS proxy"),
    ],
)
def test_what_a_proxy_of_socks_may_answer(answers: Tuple[bytes, ...], words: str) -> None:
    with Proxy(script=answering(*answers)) as proxy:
        assert words in failure(proxy, "socks5h")


@pytest.mark.parametrize(("scheme", "during"), [("http", "CONNECT"), ("socks5h", "SOCKS")])
def test_a_proxy_that_says_nothing(scheme: str, during: str) -> None:
    over = threading.Event()
    with Proxy(script=lambda client: over.wait(60) and None) as proxy:
        words = failure(proxy, scheme, connect_timeout_ms=200)
        assert "connect timeout during" in words
        assert during in words
        over.set()


def test_no_proxy_listens() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with penstock.Channel(f"{NAME}:1", tls=False, options={"proxy": f"http://{address}"}) as channel:
            assert f"the proxy {address}: Connection refused" in error(channel)
    with penstock.Channel(f"{NAME}:1", tls=False, options={"proxy": "http://proxy.invalid:1"}) as channel:
        assert "the proxy proxy.invalid:1: " in error(channel)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("proxy.example:3128", "it begins neither with"),
        ("https://proxy.example:3128", "it begins neither with"),
        ("http://proxy.example:0", "its port is not a number"),
        ("http://:3128", "it has no host"),
        ("http://a:secret@", "it has no host"),
        ("http://@a:1", "without a user"),
        ("http://a:b%zz@c:1", "two hexadecimal digits"),
        ("http://a%3ab:c@d:1", "its user has a colon"),
        ("http://a:" + "b" * 256 + "@c:1", "longer than 255 bytes"),
        ("http://a:1/path", "has a path"),
        ("http://a b:1", "a space"),
        ("http://[a]:1", "not an IPv6 address"),
        ("http://a_!:1", "no host name has"),
        (7, "expected a URL"),
    ],
)
def test_urls_that_are_no_proxy(url: Any, words: str) -> None:
    with pytest.raises(penstock.Error, match=r"\$\.proxy") as caught:
        penstock.Channel("a:1", options={"proxy": url})
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.fixture
def connect_server() -> Iterator[Tuple[str, List[str]]]:
    """A server of Connect over HTTP/1.1 that answers with the request, and the heads that it got."""
    heads: List[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            heads.append(f"{self.path} {self.headers['host']}")
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "application/proto")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}", heads
    server.shutdown()
    server.server_close()


def test_requests_of_http_1_are_forwarded(connect_server: Tuple[str, List[str]]) -> None:
    """Without TLS, a proxy of HTTP gets each request itself."""
    server, heads = connect_server
    with Proxy({NAME: server}, user="some:secret") as proxy:
        with through(proxy, f"http://{NAME}:80/prefix", tls=None, user="some:secret", protocol="connect") as channel:
            assert [unary(channel), unary(channel)] == [b"x", b"x"]
        assert proxy.asked == [f"GET {NAME}:80"]
        path = "/prefix/penstock.Echo/Unary"
        assert proxy.heads[0].startswith(f"POST http://{NAME}:80{path} HTTP/1.1\r\nhost: {NAME}:80\r\n")
        # This proxy passes the later requests of a connection on as they are.
        assert heads == [f"{path} {NAME}:80", f"http://{NAME}:80{path} {NAME}:80"]
        # The authority of a call does not change where it goes; with an authority of its own, a channel has a tunnel.
        with through(proxy, f"{NAME}:80", user="some:secret", protocol="connect") as channel:
            assert unary(channel, authority="other.invalid") == b"x"
            own = unary(channel, metadata=[("proxy-authorization", "Basic mine")])
            assert own == b"x"
        assert proxy.asked.pop() == f"GET {NAME}:80"
        assert proxy.heads.pop().count("proxy-authorization") == 1
        assert heads.pop(-2) == f"/penstock.Echo/Unary {NAME}:80"
        heads.pop()
        with through(
            proxy, f"{NAME}:80", user="some:secret", protocol="connect", authority="other.invalid"
        ) as channel:
            assert unary(channel) == b"x"
        assert proxy.asked.pop() == f"CONNECT {NAME}:80"
        assert heads.pop() == "/penstock.Echo/Unary other.invalid"
        # Through a SOCKS proxy, and to addresses, requests go as they go without a proxy.
        for target, scheme in ((f"{NAME}:80", "socks5h"), (f"ipv4:{server}", "http")):
            with through(proxy, target, scheme, "some:secret", protocol="connect") as channel:
                assert unary(channel) == b"x"
        assert proxy.asked[1:] == [f"SOCKS {NAME}:80", f"CONNECT {server}"]
        assert heads[2].startswith("/penstock.Echo/Unary")


def test_grpcio_s_options_of_proxies(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Proxy({NAME: server}) as proxy:
        monkeypatch.setenv("grpc_proxy", f"http://{proxy.address}")
        for options in ([("grpc.enable_http_proxy", 1)], [("grpc.http_proxy", f"http://{proxy.address}")]):
            with penstock.grpc.insecure_channel(f"{NAME}:1", options) as channel:
                assert channel.unary_unary("/penstock.Echo/Unary")(b"x", timeout=20) == b"x"
        given, off = ("grpc.http_proxy", f"http://{proxy.address}"), ("grpc.enable_http_proxy", 0)
        for options in ([off], [given, off], [off, given]):
            with penstock.grpc.insecure_channel(server, options) as channel:
                assert channel.unary_unary("/penstock.Echo/Unary")(b"x", timeout=20) == b"x"
        assert len(proxy.asked) == 2


def test_events_name_the_proxy() -> None:
    events: List[penstock.ConnectionEvent] = []

    class Watching(penstock.Interceptor):
        def on_connection(self, event: penstock.ConnectionEvent) -> None:
            events.append(event)

    script = answering(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
    with Proxy(script=script) as proxy, through(proxy, f"{NAME}:1") as channel:
        channel.add_interceptor(Watching())
        error(channel)
    words = "".join(str(event) for event in events)
    assert f"the proxy {proxy.address} has refused to connect to {NAME}:1: 502 Bad Gateway" in words


def test_the_proxy_goes_and_comes_back(server: str) -> None:
    """A call that waits is carried out by the next connection through the proxy."""
    answers: List[Callable[[socket.socket], None]] = [answering(b"HTTP/1.1 503 Busy\r\n\r\n")] * 2

    class Coming(Proxy):
        def _serve(self, client: socket.socket) -> None:
            self.script = answers.pop() if answers else None
            super()._serve(client)

    with Coming({NAME: server}) as proxy, through(proxy, f"{NAME}:1", initial_backoff_ms=10) as channel:
        assert unary(channel, wait_for_ready=True, timeout=20) == b"x"
    assert answers == []
