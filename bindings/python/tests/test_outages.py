"""Outages that are made up, each found by the log, the channel's figures, the snapshot and the metrics alone, as
docs/operating.md says."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import threading
from concurrent import futures
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import grpc
import pytest

import penstock
from conftest import REPOSITORY
from helpers import eventually, on_thread, running_peer
from penstock import Channel, Hop, Verdict, ready

UNARY = "/penstock.Probe/Unary"
HANG = "/penstock.Probe/Hang"


class Watch:
    """A channel with the ready-made log and metrics."""

    def __init__(self, target: str, *interceptors: Any, tls: Any = False, **options: Any) -> None:
        self.lines: List[Dict[str, Any]] = []
        self.metrics = ready.Metrics()
        log = ready.Logging(lambda line: self.lines.append(json.loads(line)), channel="debug")
        self.runtime = penstock.Runtime()
        self.channel = Channel(
            target,
            tls=tls,
            runtime=self.runtime,
            options=options,
            interceptors=[(self.metrics, 1000), *interceptors, (log, -1000)],
        )

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()
        self.runtime.shutdown(20)

    def said(self, event: str) -> List[Dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    def endpoints(self) -> List[Dict[str, Any]]:
        return self.channel.stats()["endpoints"]  # type: ignore[no-any-return]

    def connection(self) -> Dict[str, Any]:
        eventually(lambda: any(endpoint["connections"] for endpoint in self.endpoints()))
        return self.endpoints()[0]["connections"][0]  # type: ignore[no-any-return]

    def holders(self) -> List[str]:
        calls = self.runtime.snapshot()["calls"]
        return [call["holder"]["text"] for call in calls if call["holder"]]

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the metric over all samples that have these labels."""
        found = re.findall(rf"^{name}{{(.*)}} (\S+)$", self.metrics.prometheus(), re.M)
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(float(value) for text, value in found if all(label in text for label in wanted))


def unary(channel: Channel, method: str = UNARY, data: bytes = b"{}", **keywords: Any) -> Optional[penstock.RpcError]:
    try:
        channel.unary_unary(method)(data, **keywords)
    except penstock.RpcError as error:
        return error
    return None


@contextlib.contextmanager
def call_in_background(channel: Channel, method: str) -> Iterator[None]:
    """A call that is cancelled at the end."""
    call = channel.unary_unary(method).future(b"{}")
    try:
        yield
    finally:
        call.cancel()


def test_a_hung_server(server: str) -> None:
    with Watch(server, silence_event_ms=50) as watch, call_in_background(watch.channel, HANG):
        eventually(lambda: len(watch.said("silent")) > 1)
        assert watch.said("silent")[0]["address"] == server
        assert watch.holders() == [f"waiting for the server {server}"]
        connection = watch.connection()
        assert (connection["state"], connection["streams"], connection["received_messages"]) == ("ready", 1, 0)
        assert connection["silent_ms"] >= 50
        assert watch.channel.stats()["attempts"]["waiting"] == 0
        assert watch.metric("grpc_client_in_flight", grpc_method="Hang", grpc_target=server) == 1


def test_a_hung_server_in_the_log(server: str) -> None:
    """With a deadline the line of the call's end has the peer and the waits: hardly any."""
    with Watch(server) as watch:
        unary(watch.channel)
        assert unary(watch.channel, HANG, timeout=0.3)
        (line,) = [line for line in watch.said("status") if line["method"] == HANG]
        assert (line["name"], line["peer"], line["attempts"]) == ("DEADLINE_EXCEEDED", server, 1)
        assert "waiting for the server" in line["message"]
        assert max(line["waited_us"].values()) < 100_000


@contextlib.contextmanager
def small_server(options: Any) -> Iterator[str]:
    """A grpcio server with a method that hangs, and one that answers."""
    server = grpc.server(futures.ThreadPoolExecutor(8), options=options)
    over = threading.Event()

    def hang(request: bytes, context: Any) -> bytes:
        over.wait(60)
        return request

    methods = {"Hang": hang, "Unary": lambda request, context: request}
    handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("penstock.Probe", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        over.set()
        server.stop(None).wait(20)


def test_all_streams_are_taken() -> None:
    with small_server([("grpc.max_concurrent_streams", 1)]) as target, Watch(target) as watch:
        unary(watch.channel)
        with call_in_background(watch.channel, HANG):
            eventually(lambda: watch.connection()["streams"] == 1)
            with call_in_background(watch.channel, UNARY):
                eventually(lambda: watch.channel.stats()["attempts"]["waiting"] == 1)
                assert watch.connection()["streams_allowed"] == 1
                assert "waiting for the server to allow one more call on the connection" in watch.holders()
            assert unary(watch.channel, timeout=0.2)
        (late,) = [line for line in watch.said("status") if line["name"] == "DEADLINE_EXCEEDED"]
        assert late["waited_us"]["slot"] >= 100_000
        assert late["waited_us"]["connection"] == 0


def test_a_server_that_refuses_calls() -> None:
    """After refusals the channel itself limits the calls on the connection, for a while."""
    script = str(REPOSITORY / "Tests/faults/rst-refused-always.script")
    own = (
        "waiting for the channel's own limit to allow one more call on the connection (the server has refused calls:"
    )
    with running_peer("--script", script) as target, Watch(target) as watch:
        with call_in_background(watch.channel, UNARY):
            eventually(lambda: any(text.startswith(own) for text in watch.holders()))
        eventually(lambda: own in str(unary(watch.channel, timeout=0.3)))


class BlackHole:
    """A relay between a client and a server, which loses all bytes after `lose`, as a path that died does."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._is_losing = False
        self._sockets: List[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._accepting = on_thread(self._accept)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                host, _, port = self._target.rpartition(":")
                server = socket.create_connection((host, int(port)))
                self._sockets += [client, server]
                for one, other in ((client, server), (server, client)):
                    on_thread(lambda one=one, other=other: self._relay(one, other))  # type: ignore[misc]

    def _relay(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if not self._is_losing:
                    other.sendall(data)

    def lose(self) -> None:
        self._is_losing = True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        # A connection that has just come is closed, too.
        self._accepting.join()
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def test_a_dead_path(server: str) -> None:
    path = BlackHole(server)
    try:
        with Watch(path.target, keepalive_time_ms=1000, keepalive_timeout_ms=300) as watch:
            unary(watch.channel)
            path.lose()
            error = unary(watch.channel)
            assert error is not None
            assert error.code() == penstock.StatusCode.UNAVAILABLE
            eventually(lambda: bool(watch.said("lost")))
            (silent,) = watch.said("silent")
            (lost,) = watch.said("lost")
            assert silent["ms"] >= 1000
            assert lost["message"].startswith(f"no answer to a keepalive ping from {path.target} within 300 ms")
            assert watch.metric("grpc_client_connections_lost_total", grpc_peer=path.target) == 1
    finally:
        path.close()


def test_keepalives_that_are_not_answered_yet(server: str) -> None:
    path = BlackHole(server)
    try:
        options = {"keepalive_time_ms": 1000, "keepalive_timeout_ms": 60_000}
        with Watch(path.target, **options) as watch, call_in_background(watch.channel, HANG):
            eventually(lambda: watch.connection()["streams"] == 1)
            path.lose()
            eventually(lambda: watch.connection()["keepalives"] > watch.connection()["keepalives_answered"])
    finally:
        path.close()


def test_an_interceptor_that_does_not_resolve_its_ticket(server: str) -> None:
    class Stuck(penstock.Interceptor):
        def on_start(self, hop: Hop) -> Verdict:
            hop.ticket()
            return Verdict.PAUSE

    with Watch(server, Stuck()) as watch, call_in_background(watch.channel, UNARY):
        eventually(lambda: any(text.startswith("paused in `Stuck`") for text in watch.holders()))
        # The call has not come to the channel: nothing is under way there.
        assert watch.channel.stats()["attempts"]["in_flight"] == 0
        assert watch.metric("grpc_client_in_flight") == 1


def test_an_interceptor_that_blocks_the_loop(server: str) -> None:
    begun, over = threading.Event(), threading.Event()

    class Blocks(penstock.Interceptor):
        def on_start(self, hop: Hop) -> None:
            begun.set()
            over.wait(60)

    with Watch(server, Blocks(), slow_callback_ms=50) as watch, call_in_background(watch.channel, UNARY):
        assert begun.wait(20)
        with pytest.raises(penstock.TimedOutError):
            watch.channel.stats(timeout=0.1)
        snapshot = watch.runtime.snapshot(timeout=0.1)
        assert (snapshot["complete"], snapshot["channels"]) == (False, None)
        assert snapshot["running"]["interceptor"] == "Blocks"
        over.set()
        eventually(lambda: bool(watch.said("slow_callback")))
        (line,) = watch.said("slow_callback")
        assert (line["interceptor"], line["callback"], line["level"]) == ("Blocks", "on_start", "warning")
        assert line["ms"] >= 100


def test_one_of_three_backends_is_not_there(server: str) -> None:
    config = {"loadBalancingConfig": [{"round_robin": {}}]}
    with small_server([]) as second, Watch(f"ipv4:{server},127.0.0.1:1,{second}", service_config=config) as watch:
        watch.channel.connect()
        eventually(lambda: bool(watch.said("backoff")) and len(watch.said("ready")) == 2)
        for _ in range(4):
            assert unary(watch.channel) is None
        states = {endpoint["address"]: endpoint for endpoint in watch.endpoints()}
        assert {address: one["state"] for address, one in states.items() if address != "127.0.0.1:1"} == {
            server: "ready",
            second: "ready",
        }
        bad = states["127.0.0.1:1"]
        assert bad["last_error"] == "Connection refused"
        assert bad["failures"] >= 1
        assert bad["connections"] == []
        line = watch.said("backoff")[0]
        assert (line["address"], line["message"], line["level"]) == ("127.0.0.1:1", "Connection refused", "warning")
        assert watch.metric("grpc_client_connect_failures_total", grpc_peer="127.0.0.1:1") >= 1
        assert watch.metric("grpc_client_connections_opened_total") == 2
        assert watch.metric("grpc_client_peer_handled_total", grpc_code="OK", grpc_peer=second) >= 1


def test_a_name_that_does_not_resolve() -> None:
    with Watch("dns:///no-such-host.invalid:1") as watch:
        error = unary(watch.channel)
        assert error is not None
        assert error.code() == penstock.StatusCode.UNAVAILABLE
        eventually(lambda: len(watch.said("unreachable")) == 1)
        line = watch.said("unresolved")[0]
        assert line["level"] == "error"
        assert "does not resolve" in line["message"]
        name = watch.channel.stats()["name"]
        assert name["addresses"] == 0
        assert "does not resolve" in name["last_error"]
        assert name["next_ms"] is not None or name["resolving"]
        assert watch.said("status")[0]["peer"] is None


@pytest.fixture(scope="module")
def expired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate that ran out in 2020, and its key."""
    folder = tmp_path_factory.mktemp("expired")
    (folder / "ca.cnf").write_text(
        "[ca]\ndefault_ca=d\n[d]\nnew_certs_dir=.\ndatabase=index.txt\nserial=serial\ndefault_md=sha256\n"
        "policy=p\nx509_extensions=e\n[p]\ncommonName=supplied\n[e]\nsubjectAltName=IP:127.0.0.1\n"
    )
    (folder / "index.txt").write_text("")
    (folder / "serial").write_text("01\n")
    for command in (
        "req -newkey rsa:2048 -nodes -keyout key.pem -out csr.pem -subj /CN=localhost",
        "ca -batch -config ca.cnf -selfsign -keyfile key.pem -in csr.pem -out cert.pem -notext"
        " -startdate 20200101000000Z -enddate 20200201000000Z",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
    return folder


def test_a_certificate_that_ran_out(expired: Path) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    pair = [((expired / "key.pem").read_bytes(), (expired / "cert.pem").read_bytes())]
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials(pair))
    server.start()
    try:
        tls = {"roots_file": str(expired / "cert.pem")}
        with Watch(f"127.0.0.1:{port}", tls=tls) as watch:
            assert unary(watch.channel)
            eventually(lambda: bool(watch.said("unreachable")))
            assert "expired" in watch.said("backoff")[0]["message"]
            assert "expired" in watch.said("unreachable")[0]["message"]
            (endpoint,) = watch.endpoints()
            assert "expired" in endpoint["last_error"]
            assert endpoint["next_ms"] is not None or endpoint["connections"]
    finally:
        server.stop(None).wait(20)


# ---- The page ----


def rows(heading: str) -> List[List[str]]:
    """The rows of the table below a heading of docs/operating.md."""
    page = (REPOSITORY / "docs/operating.md").read_text()
    part = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def members(view: Any, path: str = "") -> Iterator[str]:
    """The paths of all members in an object, such as "endpoints.address"."""
    if isinstance(view, list):
        for one in view:
            yield from members(one, path)
    elif isinstance(view, dict):
        for name, value in view.items():
            yield f"{path}{name}"
            yield from members(value, f"{path}{name}.")


def test_the_page_has_each_member_of_the_figures(server: str, servers: Dict[str, str]) -> None:
    config = {
        "methodConfig": [
            {
                "name": [{}],
                "retryPolicy": {
                    "maxAttempts": 2,
                    "initialBackoff": "1s",
                    "maxBackoff": "1s",
                    "backoffMultiplier": 1,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ],
        "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
    }
    with Watch(server, service_config=config) as watch:
        unary(watch.channel)
        stats = watch.channel.stats()
        (channel,) = watch.runtime.snapshot()["channels"]
        assert set(members(stats)) == set(members(channel))
    told = {name for row in rows("The figures of a channel") for name in re.findall(r"`([\w.]+)`", row[0])}
    with Channel(servers["tls"], tls={"verify": False}) as secured:
        unary(secured)
        handshakes = {"tls": secured.stats()["tls"]}
    assert told == set(members(stats)) | set(members(handshakes))
    assert handshakes == {"tls": {"full_handshakes": 1, "resumed_handshakes": 0}}
    assert (stats["target"], stats["state"], stats["policy"]) == (server, "ready", "pick_first")
    assert stats["throttle"] == {"tokens": 10, "max_tokens": 10, "retries_allowed": True}
    assert (stats["attempts"]["started"], stats["attempts"]["succeeded"]) == (1, 1)
    connection = stats["endpoints"][0]["connections"][0]
    assert (connection["sent_messages"], connection["received_messages"]) == (1, 1)
    assert connection["streams_opened"] == 1
    assert connection["sent_bytes"] > 100
    assert connection["received_bytes"] > 50
    assert connection["send_window"] > 0
    assert connection["receive_window"] > 0


def test_the_page_has_each_event() -> None:
    told = [(row[0].strip("`"), row[1]) for row in rows("The events")]
    header = (REPOSITORY / "include/penstock/interceptor.h").read_text()
    names = [kind.name.lower() for kind in penstock.ConnectionEventKind]
    assert sorted(name for name, _ in told) == sorted(names)
    assert all(f"PENSTOCK_CONNECTION_{name.upper()}" in header for name in names)
    assert {level for _, level in told} == {"debug", "info", "warning", "error"}


def test_http1_connections_have_figures_too(server: str, peer: Any) -> None:
    with Watch(peer.target, protocol="connect") as watch:
        unary(watch.channel, "/penstock.Echo/Unary")
        connection = watch.connection()
        assert (connection["http"], connection["protocol"], connection["streams_opened"]) == ("1.1", "connect", 1)
        assert (connection["sent_messages"], connection["received_messages"]) == (1, 1)
        assert connection["keepalives"] is None
        assert connection["sent_bytes"] > 50


def test_the_figures_of_a_closed_channel(server: str) -> None:
    channel = Channel(server, tls=False)
    unary(channel)
    channel.close()
    eventually(lambda: channel.stats()["state"] == "shutdown")
    assert channel.stats()["endpoints"] == []


def test_figures_are_read_by_many_threads(server: str) -> None:
    """While calls run, and in a callback."""
    seen: List[Dict[str, Any]] = []

    class Asks(penstock.Interceptor):
        def on_headers(self, hop: Hop) -> None:
            seen.append(watch.channel.stats())

    with Watch(server, Asks()) as watch:
        work: List[Callable[[], object]] = [
            lambda: [unary(watch.channel) for _ in range(100)],
            lambda: [watch.channel.stats() for _ in range(100)],
            lambda: [watch.runtime.snapshot() for _ in range(100)],
        ]
        for thread in [on_thread(one) for one in work * 2]:
            thread.join()
        attempts = watch.channel.stats()["attempts"]
    assert (attempts["started"], attempts["succeeded"], attempts["in_flight"]) == (200, 200, 0)
    assert len(seen) == 200
