"""Classes and functions that the tests share."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

import penstock
from conftest import REPOSITORY
from penstock import Channel, Hop, Interceptor

EVENTS = (
    "on_start",
    "on_send",
    "on_half_close",
    "on_headers",
    "on_receive",
    "on_status",
    "on_cancel",
    "on_demand",
    "on_sent",
)


# Older versions of grpcio, which are the newest for old Pythons, behave otherwise here and there.
try:
    _GRPCIO = importlib.metadata.version("grpcio")
except importlib.metadata.PackageNotFoundError:
    _GRPCIO = "0.0"
with_new_grpcio = pytest.mark.skipif(
    tuple(map(int, _GRPCIO.split(".")[:2])) < (1, 85), reason=f"compares with grpcio 1.85 or later, not {_GRPCIO}"
)


class Only(Interceptor):
    """An interceptor that has only the callbacks given as keywords."""

    def __init__(self, **callbacks: Callable[[Hop], Any]) -> None:
        for callback, function in callbacks.items():
            setattr(self, callback, function)


def eventually(holds: Callable[[], bool]) -> None:
    """Waits until ``holds()`` is true, for a minute at most."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def unary(channel: Channel, data: bytes = b"x", **options: Any) -> Any:
    return channel.unary_unary("/penstock.Echo/Unary")(data, **options)


def bidi(channel: Channel, messages: List[bytes]) -> List[bytes]:
    return list(channel.stream_stream("/penstock.Echo/Bidi")(messages))


def recorder(log: List[Any], name: str = "", events: Tuple[str, ...] = EVENTS) -> Only:
    def seen(event: str) -> Callable[[Hop], None]:
        return lambda hop: log.append((name, event) if name else event)

    interceptor = Only(**{event: seen(event) for event in events})
    interceptor.name = name
    return interceptor


def seen(view: Any, name: str) -> List[str]:
    """The values of the request header ``name`` in the server's view of a call (see `probe`)."""
    return [value for key, value in view["metadata"] if key == name]


def on_thread(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


# ---- Servers and programs of their own ----


@contextlib.contextmanager
def running_peer(*arguments: str) -> Iterator[str]:
    """A penstock-peer with ``arguments``, until the block is left; gives its target."""
    command = [str(REPOSITORY / "build/bin/penstock-peer"), "--exit-with-stdin", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["address"]
        process.stdin.close()
        process.wait(20)


class Peer:
    """A penstock-peer that reports each call except calls of a method named Unary."""

    def __init__(self, address: str = "127.0.0.1:0") -> None:
        command = [REPOSITORY / "build/bin/penstock-peer", "--listen", address, "--print-requests"]
        self.process = subprocess.Popen(
            [*command, "--exit-with-stdin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.target: str = json.loads(self.process.stdout.readline())["address"]
        self.seen: List[Dict[str, Any]] = []
        self.came = threading.Event()
        self._reader = on_thread(self._read)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            request = json.loads(line)
            if not request["path"].endswith("/Unary"):
                self.seen.append(request)
                self.came.set()

    def saw(self) -> Dict[str, Any]:
        """Waits until a call that is not to a method named Unary has ended at the peer. Returns the peer's report of
        the first such call."""
        assert self.came.wait(30)
        return self.seen[0]

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(20)
        self._reader.join()
        self.process.stdout.close()


SOURCES = str(Path(penstock.__file__).parents[1])
PRELUDE = f"""
import os, signal, sys, threading
sys.path.insert(0, {SOURCES!r})
import penstock
penstock.load({penstock.load()!r})
target = sys.argv[1]
"""


def program(text: str, target: str, first: str = "") -> subprocess.Popen[str]:
    """Starts ``text`` as a program, after ``first`` and the `PRELUDE`."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", first + PRELUDE + text, target]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    return subprocess.Popen(command, text=True, **pipes)


def ended(process: subprocess.Popen[str]) -> Tuple[str, str]:
    """Waits until the program has ended, and returns its stdout and stderr. A program that has not ended after 60 s
    is aborted, which makes it print its stack, and the test fails with that output."""
    try:
        return process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGABRT)
        printed, complaints = process.communicate()
        pytest.fail(f"the program hangs\n{printed}\n{complaints}")


def run(text: str, target: str, first: str = "") -> str:
    """Runs ``text`` as a program (see `program`) and returns its stdout. It must succeed and print nothing to
    stderr."""
    with program(text, target, first) as process:
        printed, complaints = ended(process)
    assert process.returncode == 0, complaints
    assert complaints == "", complaints
    return printed
