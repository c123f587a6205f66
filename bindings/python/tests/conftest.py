"""What the tests share: the library that the repository has built, generated stubs, and a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

import penstock

REPOSITORY = Path(__file__).resolve().parents[3]
PROTO = REPOSITORY / "Tests/interop/proto"
LIBRARY = REPOSITORY / "build/lib/libpenstock.so.0"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--library", default=str(LIBRARY), help="the libpenstock to test (build/lib of the repository)")


def pytest_configure(config: pytest.Config) -> None:
    library = config.getoption("--library")
    if not Path(library).exists():
        pytest.exit(f"{library} is missing: run make lib first", returncode=2)
    penstock.load(library)


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with what grpcio-tools generates from our .proto files; importable."""
    folder = str(tmp_path_factory.mktemp("stubs"))
    protos = [str(file) for file in sorted(PROTO.glob("*.proto"))]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", f"--python_out={folder}"]
    subprocess.run([*command, f"--grpc_python_out={folder}", *protos], check=True)
    sys.path.insert(0, folder)
    return folder


@pytest.fixture(scope="session")
def server(stubs: str) -> Iterator[str]:
    """The target of a grpcio server that runs as long as the tests do."""
    program = Path(__file__).with_name("server.py")
    with subprocess.Popen(
        [sys.executable, str(program), stubs], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"127.0.0.1:{json.loads(process.stdout.readline())['port']}"
        process.stdin.close()
        process.wait(20)


@pytest.fixture
def channel(server: str) -> Iterator[penstock.Channel]:
    with penstock.Channel(server) as opened:
        yield opened


@pytest.fixture
def probe(channel: penstock.Channel) -> Callable[..., Any]:
    """Calls the probe with a wish, and gives what the server saw."""
    call = channel.unary_unary("/penstock.Probe/Unary", json_bytes, json.loads)

    def ask(wish: Any = None, **options: Any) -> Any:
        return call(wish or {}, **options)

    return ask


def json_bytes(view: Any) -> bytes:
    return json.dumps(view).encode()


def await_hanging(channel: penstock.Channel, count: int) -> None:
    """Waits until the server has that many hanging calls."""
    channel.unary_unary("/penstock.Probe/AwaitHanging")(str(count).encode(), timeout=30)
