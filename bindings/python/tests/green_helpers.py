"""The common part of the tests of gevent and eventlet. Each test runs a program of its own, since a package can be
patched, and a hub chosen, only once in a process."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from helpers import ended, program

PACKAGES = {
    "gevent": (
        "import gevent.monkey; gevent.monkey.patch_all()",
        """
import gevent, gevent.event, gevent.queue, gevent.socket
import penstock.gevent as hub
from gevent import GreenletExit, Timeout, spawn
from gevent.monkey import get_original as original
from gevent.queue import Queue
def turn():
    event = gevent.event.Event()
    spawn(event.set)
    assert event.wait(60)
def readable(descriptor): gevent.socket.wait_read(descriptor, timeout=60)
def finished(greenlets): return [each.get(timeout=60) for each in greenlets]
def on_os_thread(*work): return gevent.get_hub().threadpool.apply(*work)
""",
    ),
    "eventlet": (
        "import eventlet; eventlet.monkey_patch()",
        """
import eventlet, eventlet.event, eventlet.hubs, eventlet.patcher, eventlet.tpool
import penstock.eventlet as hub
from eventlet import Timeout, spawn
from eventlet.queue import Queue
from greenlet import GreenletExit
def original(module, name): return getattr(eventlet.patcher.original(module), name)
def turn():
    event = eventlet.event.Event()
    spawn(event.send)
    with Timeout(60): event.wait()
def readable(descriptor): eventlet.hubs.trampoline(descriptor, read=True, timeout=60)
def finished(greenlets):
    with Timeout(60): return [each.wait() for each in greenlets]
def on_os_thread(work, arguments): return eventlet.tpool.execute(work, *arguments)
""",
    ),
}
# `turn` waits in the hub until another greenlet has run, and `readable` for a pipe. `settled` makes round trips until
# ``size`` stays the same meanwhile.
COMMON = """
hub.init()
import contextlib, gc
StatusCode = penstock.StatusCode
channel = penstock.Channel(target, tls=False)
echo = channel.unary_unary("/penstock.Echo/Unary")
hang = channel.unary_unary("/penstock.Probe/Hang")
hang_stream = channel.unary_stream("/penstock.Probe/HangStream")
bidi = channel.stream_stream("/penstock.Echo/Bidi")
def hanging(count): channel.unary_unary("/penstock.Probe/AwaitHanging")(str(count).encode(), timeout=30)
def settled(size):
    seen = None
    while seen != size():
        seen = size()
        for _ in range(5): echo(b"")
@contextlib.contextmanager
def raises(kind):
    try: yield
    except kind: return
    raise AssertionError(f"{kind} was not raised")
def code_of(call, *arguments, **keywords):
    try: call(*arguments, **keywords)
    except penstock.RpcError as error: return error.code()
"""
# Python prints this warning at the import of eventlet.
QUIET = 'import warnings; warnings.filterwarnings("ignore", "(?s).*eventlet", Warning)\n'


def text_of(package: str, patched: str, text: str) -> str:
    patch, names = PACKAGES[package]
    return (f"{patch}\n" if patched == "patched after" else "") + names + COMMON + textwrap.dedent(text)


def before(package: str, patched: str) -> str:
    return QUIET + (f"{PACKAGES[package][0]}\n" if patched == "patched before" else "")


def green(package: str, patched: str, text: str, server: str, is_quiet: bool = True) -> str:
    """Runs ``text`` as a program with the hub of ``package``, and returns its stdout. ``is_quiet``: it must print
    nothing to stderr."""
    with program(text_of(package, patched, text), server, before(package, patched)) as process:
        printed, complaints = ended(process)
    assert process.returncode == 0, complaints
    assert not is_quiet or complaints == "", complaints
    return printed


def cases(*patched: str, often: Any = ("gevent, patched before",)) -> Any:
    """Runs a test with both packages: each time in the cases ``often``, with --again in the others."""
    return pytest.mark.parametrize(
        ("package", "patched"),
        [
            pytest.param(package, how, marks=() if f"{package}, {how}" in often else pytest.mark.again)
            for package in PACKAGES
            for how in patched
        ],
    )


BOTH = ("gevent, patched before", "eventlet, patched before")
