"""The texts of `penstock doctor` and `penstock health`: events in words, what is installed, what a server tells."""

from __future__ import annotations

import argparse
import base64
import ctypes
import hashlib
import re
from importlib import metadata as packages
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest
from grpc_health.v1 import health_pb2

import penstock
from cli_helpers import cli, printed, refused
from helpers import Only
from penstock import (
    Channel,
    ConnectionEvent,
    ConnectionEventKind,
    Connectivity,
    Hop,
    StatusCode,
    TimedOutError,
    Verdict,
)
from penstock._cli import doctor, health


def event(kind: ConnectionEventKind, **fields: Any) -> ConnectionEvent:
    given: Dict[str, Any] = {"target": "host:1", "address": None, "message": None, "seconds": 0.0}
    names = ("tls_version", "tls_cipher", "tls_alpn")
    return ConnectionEvent(kind=kind, **{**given, **dict.fromkeys(names), **fields})


KINDS = ConnectionEventKind
AT = {"address": "192.0.2.1:1"}
TLS = {"tls_version": "TLSv1.3", "tls_cipher": "AES", "tls_alpn": "h2"}
TOLD: List[Any] = [
    (KINDS.RESOLVING, {}, "looks up the addresses of host:1"),
    (KINDS.RESOLVED, {"message": "2 addresses"}, "finds 2 addresses"),
    (KINDS.UNRESOLVED, {"message": "no such name"}, "finds no address: no such name"),
    (KINDS.UNRESOLVED, {}, "finds no address"),
    (KINDS.CONNECTING, AT, "connects to 192.0.2.1:1"),
    (KINDS.CONNECTING, {}, "connects to host:1"),
    (KINDS.SECURED, {**AT, **TLS}, "TLS: TLSv1.3, AES, ALPN h2"),
    (KINDS.SECURED, {**AT, **TLS, "tls_alpn": None}, "TLS: TLSv1.3, AES, ALPN none"),
    (KINDS.READY, {**AT, "protocol": "grpc", "http": "2"}, "192.0.2.1:1 takes calls: grpc over HTTP/2"),
    (KINDS.DRAINING, AT, "192.0.2.1:1 takes no new calls any more"),
    (KINDS.DRAINING, {**AT, "message": "GOAWAY"}, "192.0.2.1:1 takes no new calls any more: GOAWAY"),
    (KINDS.LOST, {**AT, "message": "reset"}, "the connection to 192.0.2.1:1 has ended: reset"),
    (
        KINDS.BACKOFF,
        {**AT, "message": "refused", "seconds": 1.25},
        "192.0.2.1:1 can't be used: refused; the next attempt begins after 1.2 s",
    ),
    (KINDS.SILENT, {**AT, "seconds": 3.0}, "nothing has come from 192.0.2.1:1 for 3.0 s"),
    (KINDS.TLS_KEPT, {"message": "no file"}, "tls_kept host:1: no file"),
    (KINDS.RETRY, AT, "retry 192.0.2.1:1"),
]


@pytest.mark.parametrize(("kind", "fields", "told"), TOLD)
def test_an_event_in_words(kind: ConnectionEventKind, fields: Dict[str, Any], told: str) -> None:
    assert doctor._told(event(kind, **fields)) == told


def test_an_event_as_a_record_has_the_fields_that_are_known() -> None:
    assert doctor._view(event(KINDS.RESOLVING)) == {"event": "RESOLVING"}
    full = {**AT, **TLS, "message": "", "protocol": "grpc", "http": "2"}
    assert doctor._view(event(KINDS.READY, **full, seconds=5.0)) == {"event": "READY", **full}


def test_the_failure_is_the_last_message() -> None:
    observer = doctor.Observer()
    observer.on_connection(event(KINDS.RESOLVED, message="2 addresses"))
    observer.on_connection(event(KINDS.BACKOFF, message="first"))
    observer.on_connection(event(KINDS.BACKOFF, message="second"))
    observer.on_connection(event(KINDS.RESOLVING))
    assert observer.failure() == "second"
    assert [known.kind.name for _, known in observer.events] == ["RESOLVED", "BACKOFF", "BACKOFF", "RESOLVING"]
    # Milliseconds since it was made, in order.
    times = [ms for ms, _ in observer.events]
    assert times == sorted(times)
    assert 0 <= times[0] < 60_000


@pytest.mark.parametrize("kind", [KINDS.BACKOFF, KINDS.UNRESOLVED])
def test_a_failure_without_a_message(kind: ConnectionEventKind) -> None:
    observer = doctor.Observer()
    assert not observer._failed.is_set()
    observer.on_connection(event(KINDS.CONNECTING, **AT))
    assert not observer._failed.is_set()
    observer.on_connection(event(kind))
    assert observer._failed.is_set()
    assert observer.failure() == ""


# ---- What is installed ----


VERSIONS: Dict[str, Any] = {
    "version": "1.2.3",
    "libraries": {
        "openssl": {"version": "3.0.8", "inside": True},
        "zlib": {"version": "1.3", "inside": False},
        "nghttp2": {"version": "1.60", "inside": True},
        "zstd": {"version": "1.5", "inside": False},
    },
}


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "library_versions", lambda: VERSIONS)


def test_the_libraries_inside_and_outside(versions: None) -> None:
    found = doctor._installed()
    assert found["libpenstock"].startswith("1.2.3, /")
    assert found["libraries inside"] == "openssl 3.0.8, nghttp2 1.60"
    assert found["libraries of the system"] == "zlib 1.3, zstd 1.5"
    assert doctor._listed({}, inside=True) == "none"


def test_packages_that_are_there_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    found = doctor._installed()
    assert found["penstock"] == penstock.__version__
    assert found["protobuf"] == packages.version("protobuf")
    assert found["rich"] == packages.version("rich")

    def missing(name: str) -> str:
        raise packages.PackageNotFoundError(name)

    monkeypatch.setattr(packages, "version", missing)
    monkeypatch.setenv("PATH", "")
    found = doctor._installed()
    assert found["protobuf"] == "not installed: call, list, describe and bench need it"
    assert found["rich"] == "not installed: the output has no colours"
    assert found["protoc"] == "not installed: --proto needs it, or grpcio-tools"


def test_protoc_is_that_of_the_path_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "protoc").write_text("")
    (tmp_path / "protoc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor._installed()["protoc"] == str(tmp_path / "protoc")
    monkeypatch.setenv("PATH", "")
    assert doctor._installed()["protoc"] == packages.version("grpcio-tools")


def test_the_roots_are_the_first_that_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("none", "first", "second")]
    for file in files[1:]:
        file.write_text("")
    monkeypatch.setattr(doctor, "ROOTS", tuple(map(str, files)))
    assert doctor._installed()["roots of TLS"] == str(files[1])
    monkeypatch.setattr(doctor, "ROOTS", (str(files[0]),))
    assert doctor._installed()["roots of TLS"] == "none: --cacert has to name them"


OLDER = (
    "the OpenSSL 3.0.8 inside libpenstock is older than the system's, {}: look for a newer wheel, or install the "
    "library for the system"
)


@pytest.mark.parametrize(
    ("inside", "system", "warns"),
    [
        (True, "3.0.9", True),
        (True, "3.0.10", True),
        (True, "3.1.0-beta1", True),
        (True, "3.0.8", False),
        (True, "3.0.8-dev", False),
        (True, "3.0.7", False),
        (True, None, False),
        (False, "3.0.9", False),
    ],
)
def test_an_old_openssl_inside(
    monkeypatch: pytest.MonkeyPatch, inside: bool, system: Optional[str], warns: bool
) -> None:
    known = {**VERSIONS, "libraries": {"openssl": {"version": "3.0.8", "inside": inside}}}
    monkeypatch.setattr(doctor, "library_versions", lambda: known)
    monkeypatch.setattr(doctor, "_system_openssl", lambda: system)
    assert doctor._warnings() == ([OLDER.format(system)] if warns else [])
    ran = cli("doctor")
    assert (ran.code, ran.err) == (0, f"warning: {OLDER.format(system)}\n" if warns else "")


def test_the_system_s_openssl(monkeypatch: pytest.MonkeyPatch) -> None:
    found = doctor._system_openssl()
    assert found is None or re.fullmatch(r"3(\.\d+)+\S*", found)

    def load(name: str) -> Any:
        assert name == "libcrypto.so.3"
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert doctor._system_openssl() is None
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    assert doctor._system_openssl() is None


def test_only_what_is_installed_without_an_address() -> None:
    (view,) = cli("doctor", "--json").records
    assert list(view) == ["installed"]
    first, *rest = printed("doctor").splitlines()
    assert first == "installed"
    assert [line.split("  ")[0] for line in rest] == list(view["installed"])


# ---- The connection ----


class Watched:
    """A channel whose states are given, as far as it is waited for."""

    def __init__(self, *states: Connectivity) -> None:
        self.states = list(states)
        self.timeouts: List[float] = []
        self.connected = False

    def connect(self) -> None:
        self.connected = True

    @property
    def connectivity(self) -> Connectivity:
        return self.states[0]

    def wait_connectivity(self, state: Connectivity, timeout: float) -> Connectivity:
        assert state is self.states.pop(0)
        self.timeouts.append(timeout)
        if not self.states:
            self.states = [state]
            raise TimedOutError(0)
        return self.states[0]


@pytest.mark.parametrize("end", [Connectivity.READY, Connectivity.TRANSIENT_FAILURE, Connectivity.SHUTDOWN])
def test_the_state_that_comes_of_connecting(end: Connectivity) -> None:
    channel = Watched(Connectivity.IDLE, Connectivity.CONNECTING, end)
    assert doctor._connected(channel, 50) is end  # type: ignore[arg-type]
    assert channel.connected
    assert len(channel.timeouts) == 2
    assert all(0 < timeout <= 50 for timeout in channel.timeouts)


def test_connecting_that_takes_too_long() -> None:
    channel = Watched(Connectivity.CONNECTING)
    assert doctor._connected(channel, -1) is Connectivity.CONNECTING  # type: ignore[arg-type]
    assert channel.timeouts == [0]


class Asked:
    """A channel that keeps what it is asked, and with what options."""

    def __init__(self) -> None:
        self.calls: List[Tuple[str, Any, Any]] = []

    def unary_unary(self, path: str, *codecs: Any) -> Any:
        def with_call(request: Any, **options: Any) -> Any:
            self.calls.append((path, request, options))
            return "SERVING", SimpleNamespace(peer_certificates=None)

        return SimpleNamespace(with_call=with_call)

    def stream_stream(self, path: str) -> Any:
        def call(requests: Any, **options: Any) -> Any:
            self.calls.append((path, list(requests), options))
            return iter(())

        return call


@pytest.mark.parametrize(("given", "seconds"), [(None, 30), (7.0, 7.0)])
def test_the_questions_to_a_server(given: Optional[float], seconds: float) -> None:
    channel = Asked()
    args = argparse.Namespace(header=["a: b"], expand_headers=False, max_time=given)
    found = doctor._asked(args, channel)  # type: ignore[arg-type]
    assert found == {"health": "SERVING", "grpc.reflection.v1": "answers", "grpc.reflection.v1alpha": "answers"}
    options = {"metadata": [("a", "b")], "timeout": seconds}
    assert channel.calls == [
        ("/grpc.health.v1.Health/Check", "", options),
        ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", [b":\x01*"], options),
        ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", [b":\x01*"], options),
    ]


@pytest.mark.parametrize(("flags", "seconds"), [((), 30), (("--max-time", "7"), 7)])
def test_the_time_for_connecting(
    monkeypatch: pytest.MonkeyPatch, peer: Any, flags: Tuple[str, ...], seconds: float
) -> None:
    limits: List[float] = []

    def gives_up(channel: Channel, timeout: float) -> Connectivity:
        limits.append(timeout)
        return Connectivity.CONNECTING

    monkeypatch.setattr(doctor, "_connected", gives_up)
    ran = cli("doctor", "--plaintext", *flags, peer.target)
    assert (ran.code, limits) == (3, [seconds])
    # A server that can't be reached is asked nothing.
    assert ran.out.endswith("\n\nThe channel is CONNECTING.\n")
    (view,) = cli("doctor", "--json", "--plaintext", *flags, peer.target).records
    assert (view["state"], view["server"], view["advice"]) == ("CONNECTING", {}, None)


def test_what_a_server_tells(servers: Dict[str, str], certificates: Path, peer: Any) -> None:
    flags = ("doctor", "--json", "--cacert", str(certificates / "ca.pem"), servers["command_tls"])
    (view,) = cli(*flags).records
    pem = (certificates / "server.pem").read_text()
    data = base64.b64decode("".join(line for line in pem.split("\n") if not line.startswith("-----")))
    assert view["server"] == {
        "health": "SERVING",
        "certificate": f"SHA-256 {hashlib.sha256(data).hexdigest()}",
        "grpc.reflection.v1": "answers",
        "grpc.reflection.v1alpha": "not there",
    }
    times = [step["ms"] for step in view["steps"]]
    assert times == sorted(times)
    assert all(ms == round(ms, 3) for ms in times)
    assert view["steps"][0] == {"ms": times[0], "event": "RESOLVING"}
    (view,) = cli("doctor", "--json", "--plaintext", peer.target).records
    assert view["server"] == {
        "health": "SERVING",
        "grpc.reflection.v1": "not there",
        "grpc.reflection.v1alpha": "not there",
    }


def test_the_output_has_four_parts(servers: Dict[str, str]) -> None:
    target = servers["command_plain"]
    installed, steps, state = printed("doctor", "--plaintext", target).split("\n\n")
    assert installed.startswith("installed\n")
    title, *rows = steps.split("\n")
    assert title.split() == ["ms", "connection"]
    assert all(re.match(r" *\d+\.\d{3}  ", row) for row in rows)
    # As far as the words go: the number of addresses is the library's to tell.
    told = [row[title.index("connection") :] for row in rows]
    assert told[1].startswith("finds ")
    assert [told[0], *told[2:]] == [
        f"looks up the addresses of {target}",
        f"connects to {target}",
        f"{target} takes calls: grpc over HTTP/2",
    ]
    assert state.split("\n") == [
        "The channel is READY.",
        "server",
        "health                   SERVING",
        "grpc.reflection.v1       answers",
        "grpc.reflection.v1alpha  not there",
        "",
    ]


def test_an_error_of_a_server_is_told_in_its_words(server: str) -> None:
    def refuse(hop: Hop) -> Verdict:
        hop.end(StatusCode.PERMISSION_DENIED, "not you")
        return Verdict.TAKE

    args = argparse.Namespace(header=[], expand_headers=False, max_time=None)
    with Channel(server, tls=False, interceptors=[Only(on_start=refuse)]) as channel:
        found = doctor._asked(args, channel)
    assert list(found) == ["health", "grpc.reflection.v1", "grpc.reflection.v1alpha"]
    assert all("PERMISSION_DENIED" in text and "not you" in text for text in found.values())


# ---- health ----


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that has the next `penstock health` answered with these messages and this status."""

    def answer(messages: List[bytes], code: StatusCode = StatusCode.OK, message: str = "") -> None:
        def start(hop: Hop) -> Verdict:
            hop.deliver_headers({})
            for one in messages:
                hop.deliver_message(one)
            hop.deliver_status(code, message)
            return Verdict.TAKE

        def opens(args: argparse.Namespace) -> Channel:
            return Channel(args.address, tls=False, interceptors=[Only(on_start=start)])

        monkeypatch.setattr(health, "opened", opens)

    return answer


def test_a_watch_that_the_server_ends(answering: Any) -> None:
    answering([b"\x08\x01", b"\x08\x02", b""])
    ran = cli("health", "--watch", "localhost:1")
    assert ran == (1, "SERVING\nNOT_SERVING\nUNKNOWN\n", "penstock: the server has ended the watch\n")
    assert cli("health", "--watch", "--json", "localhost:1", "a.B").records == [
        {"service": "a.B", "status": "SERVING"},
        {"service": "a.B", "status": "NOT_SERVING"},
        {"service": "a.B", "status": "UNKNOWN"},
        {"error": {"message": "the server has ended the watch", "exit": 1}},
    ]


@pytest.mark.parametrize("watch", [(), ("--watch",)])
def test_a_service_that_the_server_does_not_find(answering: Any, watch: Tuple[str, ...]) -> None:
    answering([], StatusCode.NOT_FOUND, "no such service")
    ran = cli("health", *watch, "localhost:1", "a.B")
    # A watch of an unknown service does not end so, by the protocol.
    assert ran == ((69, "", "penstock: NOT_FOUND: no such service\n") if watch else (3, "SERVICE_UNKNOWN\n", ""))


@pytest.mark.parametrize("watch", [(), ("--watch",)])
def test_a_server_that_has_no_health(answering: Any, watch: Tuple[str, ...]) -> None:
    answering([], StatusCode.UNIMPLEMENTED)
    said = refused(1, "health", *watch, "localhost:1")
    assert said == "localhost:1 has no grpc.health.v1.Health: it can't be asked"
    answering([], StatusCode.INTERNAL, "oh")
    assert refused(77, "health", *watch, "localhost:1") == "INTERNAL: oh"


@pytest.mark.parametrize("length", [1, 127, 128, 129, 300, 16384])
def test_the_length_of_a_name(length: int) -> None:
    name = "x" * length
    assert health.request(name) == health_pb2.HealthCheckRequest(service=name).SerializeToString()
    assert health.request("") == b""


def test_the_metadata_of_health(monkeypatch: pytest.MonkeyPatch) -> None:
    """With $NAME replaced where a flag says so."""
    seen: List[Any] = []

    def start(hop: Hop) -> Verdict:
        seen.append((hop.method, hop.metadata["x-who"], hop.deadline is None))
        hop.deliver_headers({})
        hop.deliver_message(b"\x08\x01")
        hop.deliver_status(StatusCode.OK)
        return Verdict.TAKE

    monkeypatch.setenv("SOMEBODY", "me")
    monkeypatch.setattr(health, "opened", lambda args: Channel("a:1", tls=False, interceptors=[Only(on_start=start)]))
    header = ("-H", "x-who: ${SOMEBODY}")
    assert printed("health", *header, "a:1") == "SERVING\n"
    assert printed("health", *header, "--expand-headers", "--max-time", "20", "a:1") == "SERVING\n"
    assert cli("health", *header, "--expand-headers", "--max-time", "20", "--watch", "a:1").code == 1
    assert seen == [
        ("/grpc.health.v1.Health/Check", "${SOMEBODY}", True),
        ("/grpc.health.v1.Health/Check", "me", False),
        ("/grpc.health.v1.Health/Watch", "me", False),
    ]
