"""Nothing is leaked: neither Python objects that C held, nor handles, nor descriptors, nor threads."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
import weakref
from typing import Any, Callable, Iterator, List

import pytest

import penstock
from conftest import await_hanging, json_bytes
from helpers import run
from penstock import Channel, Hop, Interceptor, Kind, RpcError, Runtime, StatusCode, Verdict
from penstock._calls.options import forget_kept_options
from penstock._handles.objects import registry


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def soon(condition: Callable[[], bool]) -> bool:
    """Waits a minute at most until it is true. Finalizers run on the driving thread, so they may be late."""
    deadline = time.monotonic() + 60
    poke = threading.Event()
    while not condition():
        gc.collect()
        if time.monotonic() > deadline:
            return False
        poke.wait(0.001)
    return True


def nothing_registered() -> bool:
    """Whether C has no number of a Python object, but for the contexts of options that are kept for later calls."""
    forget_kept_options()
    return len(registry) == 0


@pytest.fixture(autouse=True)
def _nothing_left() -> None:
    """Waits until the objects of other tests are gone, so that they are not counted."""
    assert soon(nothing_registered)
    assert soon(lambda: sum(thread.name.startswith("penstock") for thread in threading.enumerate()) <= 1)


class Thing:
    """An object that can have weak references."""


class Busy(Interceptor):
    """Makes objects of every kind that the package's registry or the library keeps: states, values, tickets, kept
    hops."""

    def create(self, hop: Hop) -> Any:
        return Thing()

    def on_start(self, hop: Hop) -> Any:
        hop.set_value("thing", Thing())
        hop.set_value("thing", Thing())
        hop.retain()
        ticket = hop.ticket()
        event = ticket.event()
        event.metadata["x-a"] = "b"
        ticket.resume()
        return Verdict.PAUSE

    def on_receive(self, hop: Hop) -> None:
        hop.message = hop.message

    def on_status(self, hop: Hop) -> None:
        if hop.status.code not in (StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED):
            hop.status.add_detail(("a/b", b"c"))
            hop.metadata.add("x-c", "d")

    def destroy(self, hop: Hop) -> None: ...


def calls(channel: Channel) -> None:
    """Makes calls that end in each way: with OK, with an error, cancelled, dropped, at the deadline."""
    channel.unary_unary("/penstock.Echo/Unary")(b"x", metadata={"a": "b"}, timeout=20)
    list(channel.stream_stream("/penstock.Echo/Bidi")(iter([b"1", b"2"])))
    channel.stream_unary("/penstock.Echo/ClientStream")([b"1"])
    with pytest.raises(RpcError) as caught:
        channel.unary_unary("/penstock.Probe/Unary", json_bytes)({"code": 5})
    assert caught.value.values["thing"] is not None
    assert caught.value.status_details
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    next(call)
    call.initial_metadata()
    call.cancel()
    next(channel.unary_stream("/penstock.Probe/HangStream")(b""))
    with pytest.raises(RpcError):
        channel.unary_unary("/penstock.Probe/Hang")(b"", timeout=0.001)


def test_a_closed_channel_leaves_nothing(server: str) -> None:
    interceptor = Busy()
    gone = weakref.ref(interceptor)
    with Channel(server, tls=False, interceptors=[interceptor]) as channel:
        calls(channel)
    del interceptor
    assert soon(lambda: gone() is None and nothing_registered())
    del channel


def test_a_channel_that_is_dropped_leaves_nothing(server: str) -> None:
    interceptor = Busy()
    gone = weakref.ref(interceptor)
    channel = Channel(server, tls=False, interceptors=[interceptor])
    calls(channel)
    del interceptor, channel
    assert soon(lambda: gone() is None and nothing_registered())


def test_an_interceptor_that_knows_its_channel_leaves_nothing(server: str) -> None:
    class Knowing(Interceptor):
        channel: Channel

        def on_start(self, hop: Hop) -> None: ...

    interceptor = Knowing()
    gone = weakref.ref(interceptor)
    with Channel(server, tls=False, interceptors=[interceptor]) as channel:
        interceptor.channel = channel
        channel.unary_unary("/penstock.Echo/Unary")(b"x")
    del interceptor, channel
    assert soon(lambda: gone() is None)


def test_a_removed_interceptor_is_let_go_once_its_last_call_has_ended(channel: Channel) -> None:
    interceptor = Busy()
    gone = weakref.ref(interceptor)
    token = channel.add_interceptor(interceptor)
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    assert next(call) == b"first"
    token.remove()
    del token, interceptor
    gc.collect()
    assert gone() is not None
    call.cancel()
    assert soon(lambda: gone() is None)


def test_values_and_states_live_as_long_as_their_call(channel: Channel) -> None:
    value, state = Thing(), Thing()
    gone = [weakref.ref(value), weakref.ref(state)]
    kept = [value, state]
    del value, state

    class Keep(Interceptor):
        def create(self, hop: Hop) -> Any:
            return kept.pop()

        def on_start(self, hop: Hop) -> None:
            hop.set_value("value", kept.pop())

    channel.add_interceptor(Keep())
    _, outcome = channel.unary_unary("/penstock.Echo/Unary").with_call(b"x")
    assert soon(lambda: gone[1]() is None)
    assert outcome.values["value"] is gone[0]()
    del outcome
    assert soon(lambda: gone[0]() is None)


def test_an_exception_is_let_go_with_its_error(channel: Channel) -> None:
    class MyError(Exception):
        pass

    gone: List[Any] = []

    def raising(hop: Hop) -> None:
        error = MyError()
        gone.append(weakref.ref(error))
        raise error

    class Broken(Interceptor):
        def on_start(self, hop: Hop) -> None:
            raising(hop)

    channel.add_interceptor(Broken())
    penstock.set_exception_hook(lambda *_: None)
    try:
        with contextlib.suppress(RpcError):
            channel.unary_unary("/penstock.Echo/Unary")(b"x")
        with contextlib.suppress(RpcError):
            list(channel.unary_stream("/penstock.Echo/ServerStream")(b"x"))
    finally:
        penstock.set_exception_hook(None)
    assert len(gone) == 2
    assert soon(lambda: all(reference() is None for reference in gone))


def test_an_exception_that_a_hop_has_made_good_is_let_go(channel: Channel) -> None:
    class MyError(Exception):
        pass

    gone: List[Any] = []

    class Broken(Interceptor):
        def on_start(self, hop: Hop) -> None:
            error = MyError()
            gone.append(weakref.ref(error))
            raise error

    class Mending(Interceptor):
        def on_status(self, hop: Hop) -> None:
            if hop.kind is Kind.UNARY:
                hop.deliver_message(b"instead")
            hop.status.code = StatusCode.OK

    channel.add_interceptor(Broken())
    channel.add_interceptor(Mending(), priority=1)
    penstock.set_exception_hook(lambda *_: None)
    try:
        assert channel.unary_unary("/penstock.Echo/Unary")(b"x") == b"instead"
        assert channel.unary_unary("/penstock.Echo/Unary").with_call(b"x")[0] == b"instead"
        assert list(channel.unary_stream("/penstock.Echo/ServerStream")(b"x")) == []
    finally:
        penstock.set_exception_hook(None)
    assert len(gone) == 3
    assert soon(lambda: all(reference() is None for reference in gone))


def test_refused_registrations_leave_nothing(channel: Channel) -> None:
    for methods in ("not a method", "/a*b*"):
        with pytest.raises(penstock.InvalidArgumentError):
            channel.add_interceptor(Busy(), methods=methods)
    channel.close()
    with pytest.raises(penstock.ClosedError):
        channel.add_interceptor(Busy())
    assert nothing_registered()


def test_a_request_iterator_is_let_go(channel: Channel) -> None:
    def requests(thing: Thing) -> Iterator[bytes]:
        yield b"1"
        yield b"2" if thing else b""

    thing = Thing()
    gone = weakref.ref(thing)
    assert len(list(channel.stream_stream("/penstock.Echo/Bidi")(requests(thing)))) == 2
    del thing
    assert soon(lambda: gone() is None)
    assert soon(lambda: not any(thread.name == "penstock requests" for thread in threading.enumerate()))


def assert_nothing_stays(work: Callable[[], None]) -> None:
    """Runs ``work`` ten times. Afterwards there are no more descriptors and threads than before, and no object is
    registered."""
    before = descriptors(), threading.active_count()
    for _ in range(10):
        work()
    assert soon(lambda: descriptors() <= before[0] and threading.active_count() <= before[1])
    assert soon(nothing_registered)


def test_channels_and_runtimes_come_and_go(server: str) -> None:
    def work() -> None:
        runtime = Runtime()
        with Channel(server, tls=False, runtime=runtime, interceptors=[Busy()]) as channel:
            calls(channel)
        runtime.shutdown(timeout=30)

    assert_nothing_stays(work)


def test_runtimes_that_are_dropped_come_and_go(server: str) -> None:
    def work() -> None:
        channel = Channel(server, tls=False, runtime=Runtime())
        channel.unary_unary("/penstock.Echo/Unary")(b"x")

    assert_nothing_stays(work)


CALLS = """
from pathlib import Path
class Busy(penstock.Interceptor):
    def create(self, hop):
        return bytearray(1000)
    def on_start(self, hop):
        hop.set_value("thing", bytearray(1000))
        ticket = hop.ticket()
        ticket.event().metadata["x-a"] = "b"
        ticket.resume()
        return penstock.Verdict.PAUSE
    def on_receive(self, hop):
        hop.message = hop.message
    def on_status(self, hop):
        if hop.status.code is not penstock.StatusCode.CANCELLED:
            hop.status.add_detail(("a/b", bytes(1000)))
channel = penstock.Channel(target, tls=False, interceptors=[Busy()])
def resident_kilobytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4
def unary():
    channel.unary_unary("/penstock.Echo/Unary")(bytes(10_000), metadata={"a": "b"})
def failing():
    try: channel.unary_unary("/penstock.Probe/Refuse")(bytes(10_000))
    except penstock.RpcError as error: assert error.trailing_metadata() is not None
def bidi():
    list(channel.stream_stream("/penstock.Echo/Bidi")([bytes(10_000)]))
def upload():
    channel.stream_unary("/penstock.Echo/ClientStream")(iter([bytes(10_000)]))
def given_up():
    call = channel.unary_stream("/penstock.Echo/ServerStream")(bytes(10_000), metadata={"x-repeat": "2"})
    next(call)
    call.cancel()
"""


@pytest.mark.parametrize(
    "kind",
    ["unary", *(pytest.param(kind, marks=pytest.mark.again) for kind in ("failing", "bidi", "upload", "given_up"))],
)
def test_many_calls_take_no_more_memory(server: str, kind: str) -> None:
    """The calls are made in a separate process, because memory freed by other tests would hide a leak."""
    # The library keeps up to some MiB of blocks for the next calls. They are all there after the first calls.
    text = f"""
for _ in range(2000): {kind}()
before = resident_kilobytes()
for _ in range(1500): {kind}()
print(resident_kilobytes() - before)
"""
    grown = int(run(CALLS + text, server))
    # In kilobytes. If each call leaked a message, a value or a detail, this would be 1,500 to 15,000.
    assert grown < 1_000


@pytest.mark.again
def test_calls_that_begin_again_take_no_more_memory(server: str) -> None:
    text = """
class Again(penstock.SyncInterceptor):
    def intercept(self, call):
        assert call.hop.call_id == call.call_id
        replies = [call.next() for _ in range(3)]
        assert replies[0].headers is not None
        replies[-1].message = bytes(10_000)
channel.add_interceptor(Again(), priority=1)
for _ in range(500): unary()
before = resident_kilobytes()
for _ in range(1500): unary()
print(resident_kilobytes() - before)
"""
    assert int(run(CALLS + text, server)) < 1_000


def test_dropped_calls_are_ended_on_the_server(channel: Channel) -> None:
    running = [channel.unary_stream("/penstock.Probe/HangStream")(b"") for _ in range(10)]
    for call in running:
        assert next(call) == b"first"
    await_hanging(channel, 10)
    del call, running
    await_hanging(channel, 0)


def test_looks_at_a_ticket_s_event_leave_nothing(server: str) -> None:
    """The calls are made in a separate process, because memory freed by other tests would hide a leak."""
    text = """
def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
class Look(penstock.Interceptor):
    def on_start(self, hop):
        ticket = hop.ticket()
        metadata = ticket.event().metadata
        for times in (1000, 100_000):
            before = resident()
            for _ in range(times):
                metadata.get("x-a")
        # A look that left its 64 bytes would come to 6 MB.
        print(resident() - before < 2 << 20)
        ticket.resume()
        return penstock.Verdict.PAUSE
channel = penstock.Channel(target, tls=False, interceptors=[Look()])
channel.unary_unary("/penstock.Echo/Unary")(b"x", timeout=60)
"""
    assert run(text, server) == "True\n"
