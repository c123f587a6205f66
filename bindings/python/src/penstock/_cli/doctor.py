"""`penstock doctor`: what is installed, and one connection explained step by step, from its events."""

from __future__ import annotations

import argparse
import base64
import ctypes
import hashlib
import os
import platform
import shutil
import threading
import time
from importlib import metadata as packages
from typing import Any, Dict, List, Optional, Tuple

from .. import (
    Channel,
    ConnectionEvent,
    ConnectionEventKind,
    Connectivity,
    Interceptor,
    RpcError,
    StatusCode,
    TimedOutError,
    __version__,
    library_versions,
    load,
)
from .connection import advice, metadata, opened
from .failure import Exit
from .flags import add_connection, add_output
from .health import SERVICE, request, status
from .output import Output
from .reflection import VERSIONS

HELP = "show what is installed, and explain one connection step by step"
# Where the library looks for the system's roots.
ROOTS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/ssl/cert.pem",
)
# A ServerReflectionRequest that asks for the services: field 7, a string.
_LIST_SERVICES = b"\x3a\x01*"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", nargs="?", metavar="ADDRESS", help="the server to connect to (default: none)")
    add_connection(parser)
    add_output(parser)


def run(args: argparse.Namespace, output: Output) -> int:
    installed = _installed()
    if not output.machine:
        output.table(["installed", ""], [[name, text] for name, text in installed.items()])
    for warning in _warnings():
        output.note(f"warning: {warning}")
    if args.address is None:
        if output.machine:
            output.record(installed=installed)
        return Exit.OK
    observer = Observer()
    with opened(args, [(observer, 0)]) as channel:
        state = _connected(channel, args.max_time or 30)
        found = _asked(args, channel) if state is Connectivity.READY else {}
        known = advice(observer.failure()) if state is Connectivity.TRANSIENT_FAILURE else None
        events = list(observer.events)
    steps = [{"ms": round(ms, 3), **_view(event)} for ms, event in events]
    if output.machine:
        output.record(installed=installed, state=state.name, steps=steps, server=found, advice=known)
    else:
        output.line("")
        output.table([" ms", "connection"], [[f"{ms:.3f}", _told(event)] for ms, event in events])
        output.line("")
        output.line(f"The channel is {state.name}{f'; {known}' if known else ''}.")
        if found:
            output.table(["server", ""], [[name, text] for name, text in found.items()])
    return Exit.OK if state is Connectivity.READY else Exit.NO


def _installed() -> Dict[str, str]:
    def package(name: str, without: str) -> str:
        try:
            return packages.version(name)
        except packages.PackageNotFoundError:
            return f"not installed: {without}"

    versions = library_versions()
    libraries = versions["libraries"]
    roots = next((path for path in ROOTS if os.path.exists(path)), "none: --cacert has to name them")
    return {
        "penstock": __version__,
        "libpenstock": f"{versions['version']}, {os.path.realpath(load())}",
        "libraries inside": _listed(libraries, inside=True),
        "libraries of the system": _listed(libraries, inside=False),
        "Python": f"{platform.python_version()}, {platform.python_implementation()}",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "roots of TLS": roots,
        "protobuf": package("protobuf", "call, list, describe and bench need it"),
        "rich": package("rich", "the output has no colours"),
        "protoc": shutil.which("protoc") or package("grpcio-tools", "--proto needs it, or grpcio-tools"),
    }


def _listed(libraries: Dict[str, Any], inside: bool) -> str:
    """The libraries that libpenstock contains, or those that it takes from the system."""
    chosen = [f"{name} {each['version']}" for name, each in libraries.items() if each["inside"] is inside]
    return ", ".join(chosen) or "none"


def _warnings() -> List[str]:
    """Warns of an OpenSSL inside libpenstock that is older than the system's, whose faults may be known by now."""
    openssl, system = library_versions()["libraries"]["openssl"], _system_openssl()
    if not openssl["inside"] or system is None or _numbers(openssl["version"]) >= _numbers(system):
        return []
    return [
        f"the OpenSSL {openssl['version']} inside libpenstock is older than the system's, {system}: look for a newer"
        " wheel, or install the library for the system"
    ]


def _system_openssl() -> Optional[str]:
    """The version of the system's OpenSSL 3; None: there is none."""
    try:
        text = ctypes.CDLL("libcrypto.so.3").OpenSSL_version
    except (OSError, AttributeError):
        return None
    text.restype = ctypes.c_char_p
    # OPENSSL_VERSION_STRING
    return bytes(text(6)).decode()


def _numbers(version: str) -> List[int]:
    return [int(part) for part in version.split("-")[0].split(".")]


class Observer(Interceptor):
    """Keeps the events of a connection, each with the milliseconds since it was made."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._failed = threading.Event()
        self.events: List[Tuple[float, ConnectionEvent]] = []

    def on_connection(self, event: ConnectionEvent) -> None:
        self.events.append(((time.monotonic() - self._since) * 1000, event))
        if event.kind in (ConnectionEventKind.BACKOFF, ConnectionEventKind.UNRESOLVED):
            self._failed.set()

    def failure(self) -> str:
        """Waits for the event of a failure, which may come after the channel's state, and returns its message."""
        self._failed.wait(10)
        return next((event.message for _, event in reversed(self.events) if event.message), "")


def _connected(channel: Channel, timeout: float) -> Connectivity:
    """Connects, and returns the state that comes of it."""
    until = time.monotonic() + timeout
    channel.connect()
    state = channel.connectivity
    try:
        while state in (Connectivity.IDLE, Connectivity.CONNECTING):
            state = channel.wait_connectivity(state, max(until - time.monotonic(), 0))
    except TimedOutError:
        state = channel.connectivity
    return state


def _told(event: ConnectionEvent) -> str:
    """The meaning of an event, in words."""
    kinds, at = ConnectionEventKind, event.address or event.target
    why = f": {event.message}" if event.message else ""
    told = {
        kinds.RESOLVING: f"looks up the addresses of {event.target}",
        kinds.RESOLVED: f"finds {event.message}",
        kinds.UNRESOLVED: f"finds no address{why}",
        kinds.CONNECTING: f"connects to {at}",
        kinds.SECURED: f"TLS: {event.tls_version}, {event.tls_cipher}, ALPN {event.tls_alpn or 'none'}",
        kinds.READY: f"{at} takes calls: {event.protocol} over HTTP/{event.http}",
        kinds.DRAINING: f"{at} takes no new calls any more{why}",
        kinds.LOST: f"the connection to {at} has ended{why}",
        kinds.BACKOFF: f"{at} can't be used{why}; the next attempt begins after {event.seconds:.1f} s",
        kinds.SILENT: f"nothing has come from {at} for {event.seconds:.1f} s",
    }
    return told.get(event.kind, f"{event.kind.name.lower()} {at}{why}")


def _view(event: ConnectionEvent) -> Dict[str, Any]:
    names = ("address", "message", "tls_version", "tls_cipher", "tls_alpn", "protocol", "http")
    known = {name: getattr(event, name) for name in names}
    return {"event": event.kind.name, **{name: value for name, value in known.items() if value is not None}}


def _asked(args: argparse.Namespace, channel: Channel) -> Dict[str, str]:
    """The facts that a server tells of itself: its certificate, whether it serves, and its versions of reflection."""
    options: Dict[str, Any] = {"metadata": metadata(args.header, args.expand_headers), "timeout": args.max_time or 30}
    found: Dict[str, str] = {}
    check = channel.unary_unary(f"{SERVICE}/Check", request, status)
    try:
        found["health"], outcome = check.with_call("", **options)
        certificates = outcome.peer_certificates
    except RpcError as error:
        certificates = error.peer_certificates
        found["health"] = _not_there(error)
    if certificates:
        first = certificates.partition("-----END CERTIFICATE-----")[0]
        data = base64.b64decode(first.partition("-----BEGIN CERTIFICATE-----")[2])
        found["certificate"] = f"SHA-256 {hashlib.sha256(data).hexdigest()}"
    for version in VERSIONS:
        ask = channel.stream_stream(f"/{version}.ServerReflection/ServerReflectionInfo")
        try:
            list(ask([_LIST_SERVICES], **options))
            found[version] = "answers"
        except RpcError as error:
            found[version] = _not_there(error)
    return found


def _not_there(error: RpcError) -> str:
    return "not there" if error.code() is StatusCode.UNIMPLEMENTED else str(error)
