"""Fixtures that the tests share: the library that the repository has built, generated stubs, and a real server."""

from __future__ import annotations

import ast
import gc
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import weakref
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Set

import pytest

import penstock

# A program that a shell starts in the background ignores SIGINT. The tests of Ctrl-C need Python's handler.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The Python of servers, which are grpcio's. Others, such as PyPy, have no grpcio.
SERVER_PYTHON = os.environ.get("PENSTOCK_SERVER_PYTHON", sys.executable)
REPOSITORY = Path(__file__).resolve().parents[3]
PROTO = REPOSITORY / "Tests/interop/proto"
LIBRARY = REPOSITORY / "build/lib/libpenstock.so.0"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--library", default=str(LIBRARY), help="the libpenstock to test (build/lib of the repository)")
    parser.addoption("--again", action="store_true", help="run what runs long, and only that")


def pytest_configure(config: pytest.Config) -> None:
    library = config.getoption("--library")
    if not Path(library).exists():
        pytest.exit(f"{library} is missing: run make lib first", returncode=2)
    penstock.load(library)
    config.addinivalue_line("markers", "needs(reason=...): runs only where that function gives None")
    config.addinivalue_line("markers", "again: runs long, and only with --again")


NOT_RUN: List[str] = []


def missing(file: Path) -> Set[str]:
    """The packages that a test file, or a file of helpers that it imports, needs and that can't be had here."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for package in {name.split(".")[0] for name in names} - {"", "conftest"}:
            helpers = file.with_name(f"{package}.py")
            if helpers.exists():
                found |= missing(helpers)
            elif package not in sys.modules and importlib.util.find_spec(package) is None:
                found.add(package)
    return found


def pytest_ignore_collect(collection_path: Path) -> Optional[bool]:
    """Leaves out files that need packages which PyPy does not have."""
    if sys.implementation.name == "cpython" or not collection_path.name.startswith("test_"):
        return None
    without = missing(collection_path)
    if without:
        NOT_RUN.append(f"tests/{collection_path.name}: needs {', '.join(sorted(without))}")
    return bool(without) or None


def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Leaves out the tests for which the kernel lacks something, and prints the reasons at the end. They do not count
    as skipped, because no package could be installed to run them. With --again, or without, leaves out the tests that
    are of the other kind."""
    again = config.getoption("--again")
    others = [item for item in items if (item.get_closest_marker("again") is not None) != again]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]
    left_out = []
    for item in items:
        marker = item.get_closest_marker("needs")
        reason = marker.kwargs["reason"]() if marker else None
        if reason:
            left_out.append(item)
            NOT_RUN.append(f"{item.nodeid}: {reason}")
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in NOT_RUN:
        terminalreporter.write_line(f"not run: {line}")


@pytest.fixture(scope="session")
def _lasting() -> penstock.Runtime:
    """The objects that the package keeps from their first use to the end of the process. Those that the tests have
    imported so far are left out of garbage collections, which so take milliseconds."""
    gc.collect()
    # PyPy has no such function.
    getattr(gc, "freeze", lambda: None)()
    return penstock.default_runtime()


def native() -> Counter[str]:
    """How many objects of the library this process has, apart from those that the package keeps for later calls:
    handles, by the function that releases them, numbers that C has of Python objects, and calls in callback style
    that have not ended."""
    from penstock._calls.carried import left  # these modules need the library to be loaded
    from penstock._calls.options import forget_kept_options
    from penstock._handles.objects import _Last, give_back, registry

    forget_kept_options()
    made_for_one_call = sys.modules.get("penstock.grpc.experimental")
    if made_for_one_call is not None:
        made_for_one_call._channels.clear()
    counted = Counter({"numbers": len(registry), "calls": left()})
    for entry in list(weakref.finalize._registry.values()):  # type: ignore[attr-defined]
        if entry.func is give_back:
            counted[entry.args[0].__name__] += 1
        elif getattr(entry.func, "__func__", None) is _Last.hide:
            counted[entry.func.__self__._release.__name__] += 1
    return counted


@pytest.fixture(autouse=True)
def _nothing_is_left(
    _lasting: penstock.Runtime, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    """Each test leaves as many objects of the library as it has found, at most."""
    before = native()
    yield
    # pytest keeps the fixtures' values, and the exceptions that were logged.
    request.node.funcargs.clear()
    # Finalizers may run on the driving thread, so they may be late.
    deadline = time.monotonic() + 60
    reported: Any = request.config.pluginmanager.get_plugin("logging-plugin")
    while native() - before:
        reported.report_handler.records.clear()
        for phase in ("setup", "call", "teardown"):
            caplog.get_records(phase).clear()
        gc.collect()
        assert time.monotonic() < deadline, f"left: {native() - before}"
        time.sleep(0.001)


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder, on the import path, with the modules that grpcio-tools generates from our .proto files."""
    folder = str(tmp_path_factory.mktemp("stubs"))
    protos = [str(file) for file in sorted(PROTO.glob("*.proto"))]
    command = [
        SERVER_PYTHON,
        "-m",
        "grpc_tools.protoc",
        f"-I{PROTO}",
        f"--python_out={folder}",
    ]
    subprocess.run([*command, f"--grpc_python_out={folder}", *protos], check=True)
    sys.path.insert(0, folder)
    return folder


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the certificate ca.pem, and, for a server and a client, a key and a certificate chain that is
    signed by that CA."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=penstock tests", "-days", "2")
    for name, extension in (
        ("server", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ("client", "keyUsage=digitalSignature"),
    ):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "extensions").write_text(extension)
        signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "extensions"]
        openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.pem")
    return folder


@pytest.fixture(scope="session")
def servers(stubs: str, certificates: Path) -> Iterator[Dict[str, str]]:
    """The targets of a grpcio server that runs as long as the tests do: "plain", "tls", "mtls"; "packages", which has
    the services of packages for grpcio, too; and "command_plain" and so on, for the command `penstock`."""
    command = [SERVER_PYTHON, str(Path(__file__).with_name("server.py")), stubs, str(certificates)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ports = json.loads(process.stdout.readline())
        yield {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        process.stdin.close()
        process.wait(20)


@pytest.fixture(scope="session")
def server(servers: Dict[str, str]) -> str:
    """The target of the grpcio server's cleartext port."""
    return servers["plain"]


@pytest.fixture
def channel(server: str) -> Iterator[penstock.Channel]:
    with penstock.Channel(server, tls=False) as opened:
        yield opened


@pytest.fixture
def probe(channel: penstock.Channel) -> Callable[..., Any]:
    """A function that calls penstock.Probe with a request in JSON, and returns the server's view of the call."""
    call = channel.unary_unary("/penstock.Probe/Unary", json_bytes, json.loads)

    def ask(wish: Any = None, **options: Any) -> Any:
        return call(wish or {}, **options)

    return ask


@pytest.fixture
def peer() -> Iterator[Any]:
    """A `Peer` for one test."""
    from helpers import Peer  # `helpers` needs the library to be loaded

    started = Peer()
    yield started
    started.close()


def json_bytes(view: Any) -> bytes:
    return json.dumps(view).encode()


def await_hanging(channel: penstock.Channel, count: int) -> None:
    """Waits until exactly ``count`` calls hang in the server (see `Hanging` in server.py)."""
    channel.unary_unary("/penstock.Probe/AwaitHanging")(str(count).encode(), timeout=30)
