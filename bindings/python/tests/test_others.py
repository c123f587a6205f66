"""Faults reported in other libraries that concern bindings: each test is named after the public report.

docs/others.md describes each fault, and the rule that prevents it here.
"""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from pathlib import Path
from typing import Any, List

import pytest

import penstock
from helpers import Only, on_thread, unary
from penstock import Channel, Hop, Interceptor, RpcError, StatusCode, Ticket, Verdict
from test_leaks import Thing, soon


def refused(hop: Hop) -> None:
    raise ZeroDivisionError(f"in {hop.event.name}")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "penstock")


def test_others_grpc_java_6092_an_exception_in_the_last_callback(channel: Channel) -> None:
    ended = threading.Event()
    channel.add_interceptor(Only(on_status=refused), name="broken")
    channel.add_interceptor(Only(on_status=lambda hop: ended.set()), priority=1)
    for call in (
        lambda: unary(channel),
        lambda: list(channel.unary_stream("/penstock.Echo/ServerStream")(b"x")),
    ):
        ended.clear()
        with pytest.raises(RpcError, match="broken") as caught:
            call()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert ended.is_set()


@pytest.mark.parametrize("event", ["create", "on_start"])
def test_others_otel_python_5046_an_exception_before_the_call_is_sent(channel: Channel, event: str) -> None:
    ended: List[StatusCode] = []
    channel.add_interceptor(Only(**{event: refused}), name="broken")
    channel.add_interceptor(Only(on_status=lambda hop: ended.append(hop.status.code)), priority=1)
    with pytest.raises(RpcError, match="broken"):
        unary(channel)
    assert ended == [StatusCode.INTERNAL]


def test_others_otel_python_5046_metadata_that_cannot_be_sent(channel: Channel) -> None:
    """A malformed name is refused when it is set. The exception in the interceptor ends the call, which otherwise
    might wait for ever."""

    def start(hop: Hop) -> None:
        hop.metadata["not a name"] = "x"

    channel.add_interceptor(Only(on_start=start), name="broken")
    with pytest.raises(RpcError, match="broken"):
        unary(channel)


def test_others_otel_python_3271_cancel_reaches_an_interceptor_that_waits(channel: Channel) -> None:
    seen: List[StatusCode] = []
    waits = threading.Event()
    tickets: List[Ticket] = []

    def receive(hop: Hop) -> Verdict:
        tickets.append(hop.ticket())
        waits.set()
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_receive=receive, on_status=lambda hop: seen.append(hop.status.code)))
    call = channel.unary_stream("/penstock.Echo/ServerStream")(b"x")
    cancelling = on_thread(lambda: waits.wait(30) and call.cancel())
    with pytest.raises(RpcError) as caught:
        next(call)
    cancelling.join()
    assert caught.value.code() is StatusCode.CANCELLED
    assert seen == [StatusCode.CANCELLED]
    with pytest.raises(penstock.GoneError):
        tickets[0].resume()


def test_others_otel_python_2014_a_stream_is_still_a_call(channel: Channel) -> None:
    channel.add_interceptor(Only(on_receive=lambda hop: None))
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    assert next(call) == b"first"
    assert call.is_active()
    assert call.cancel()
    with pytest.raises(RpcError):
        next(call)
    assert call.code() is StatusCode.CANCELLED
    assert call.initial_metadata() is not None


class Span(Interceptor):
    """Opens a span for each call, and closes it in the call's last callback."""

    def __init__(self) -> None:
        self.open: List[object] = []
        self.ends: List[StatusCode] = []

    def create(self, hop: Hop) -> object:
        span = object()
        self.open.append(span)
        return span

    def on_status(self, hop: Hop) -> None:
        self.ends.append(hop.status.code)

    def destroy(self, hop: Hop) -> None:
        self.open.remove(hop.state)


def test_others_dd_trace_19600_no_span_stays_open(channel: Channel) -> None:
    spans = Span()
    channel.add_interceptor(spans)
    cancelled = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    next(cancelled)
    cancelled.cancel()
    # A stream that is dropped before any iteration.
    channel.unary_stream("/penstock.Probe/HangStream")(b"")
    # A stream that is dropped after its first message.
    part = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    next(part)
    del part
    assert soon(lambda: not spans.open)
    assert spans.ends == [StatusCode.CANCELLED] * 3


def test_others_grpc_37208_a_stream_answered_by_the_interceptor(channel: Channel) -> None:
    def start(hop: Hop) -> Verdict:
        hop.deliver_headers()
        hop.deliver_status(StatusCode.OK)
        return Verdict.TAKE

    channel.add_interceptor(Only(on_start=start))
    call = channel.unary_stream("/penstock.Echo/ServerStream")(b"x")
    gone = weakref.ref(call)
    assert list(call) == []
    assert not call.cancel()
    del call
    assert soon(lambda: gone() is None)


def test_others_grpc_40964_everybody_learns_of_an_interceptors_exception(channel: Channel) -> None:
    """An interceptor raises: afterwards all methods of the call work and report the exception. (In the report `done`
    and `cancel` failed, and callbacks were not called.)"""
    channel.add_interceptor(Only(on_receive=refused), name="broken")
    call = channel.unary_stream("/penstock.Echo/ServerStream")(b"x")
    with pytest.raises(RpcError, match="broken"):
        next(call)
    assert not call.is_active()
    assert not call.cancel()
    assert call.code() is StatusCode.INTERNAL
    assert "broken" in call.details()
    with pytest.raises(RpcError, match="broken"):
        call.result()


def test_others_grpc_43121_calls_leave_no_cycles(channel: Channel) -> None:
    """Objects of interceptors and calls are freed by reference counting, without the garbage collector."""

    class Keep(Interceptor):
        def __init__(self) -> None:
            self.gone: List[Any] = []

        def create(self, hop: Hop) -> Thing:
            thing = Thing()
            self.gone.append(weakref.ref(thing))
            return thing

        def on_start(self, hop: Hop) -> Verdict:
            thing = Thing()
            self.gone.append(weakref.ref(thing))
            hop.set_value("thing", thing)
            hop.ticket().resume()
            return Verdict.PAUSE

    keep = Keep()
    channel.add_interceptor(keep)
    gc.collect()
    gc.disable()
    try:
        unary(channel)
        call = channel.unary_stream("/penstock.Echo/ServerStream")(b"x")
        assert list(call) == [b"x"]
        gone = weakref.ref(call)
        del call
        assert gone() is None
        waiting = threading.Event()
        for _ in range(2000):
            if all(reference() is None for reference in keep.gone):
                break
            waiting.wait(0.005)
        assert [reference() for reference in keep.gone] == [None] * 4
    finally:
        gc.enable()


def test_others_grpc_swift_1279_a_hop_in_a_value_of_its_own_call(channel: Channel) -> None:
    gone: List[Any] = []

    def start(hop: Hop) -> None:
        own = hop.retain()
        thing = Thing()
        thing.hop = own  # type: ignore[attr-defined]
        gone.append(weakref.ref(thing))
        hop.set_value("own hop", thing)

    channel.add_interceptor(Only(on_start=start))
    unary(channel)
    assert soon(lambda: gone[0]() is None)


def resident_kilobytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def test_others_grpc_25449_a_long_stream_does_not_grow(channel: Channel) -> None:
    channel.add_interceptor(Only(on_send=lambda hop: None, on_receive=lambda hop: None))
    marks: List[int] = []

    def requests() -> Any:
        for i in range(4000):
            if i % 1000 == 999:
                marks.append(resident_kilobytes())
            yield b"message"

    assert sum(1 for _ in channel.stream_stream("/penstock.Echo/Bidi")(requests())) == 4000
    # Kilobytes for 2,000 messages. Two objects that stay for each message would be more than 400.
    assert marks[3] - marks[1] < 400


def test_others_grpc_swift_1154_many_calls_wait_for_one_refresh(channel: Channel) -> None:
    """Thirty calls wait for one token, and are restarted with it. Tests/c/test_others_restart.c does the same with a
    hundred."""
    tickets: List[Ticket] = []
    lock = threading.Lock()
    waiting = threading.Semaphore(0)

    class Refresh(Interceptor):
        replay_bytes = 1000

        def on_status(self, hop: Hop) -> Any:
            if hop.status.code is not StatusCode.UNAUTHENTICATED:
                return None
            with lock:
                tickets.append(hop.ticket())
            waiting.release()
            return Verdict.PAUSE

    def refuse_old(hop: Hop) -> None:
        if hop.metadata.get("x-token") != "new":
            hop.end(StatusCode.UNAUTHENTICATED, "expired")

    channel.add_interceptor(Refresh(), priority=1)
    channel.add_interceptor(Only(on_start=refuse_old))
    answers: List[bytes] = []
    threads = [on_thread(lambda: answers.append(unary(channel, timeout=60))) for _ in range(30)]
    for _ in range(30):
        assert waiting.acquire(timeout=30)
    # Now all calls wait, and the token comes.
    for ticket in tickets:
        ticket.event().request_metadata["x-token"] = "new"
        ticket.resolve(Verdict.RESTART)
    for thread in threads:
        thread.join()
    assert answers == [b"x"] * 30
