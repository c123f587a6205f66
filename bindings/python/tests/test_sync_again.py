"""Synchronous interceptors: a second call of `next`, and the kept hop on other threads."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any, Callable, Iterator, List

import pytest

from helpers import Only, on_thread, unary
from penstock import (
    Channel,
    GoneError,
    Hop,
    InterceptedCall,
    InterceptedReply,
    RpcError,
    StateError,
    StatusCode,
    SyncInterceptor,
    Verdict,
)


class Function(SyncInterceptor):
    """A synchronous interceptor that runs ``function``, and keeps the exceptions that it raises."""

    def __init__(self, function: Callable[[InterceptedCall], None]) -> None:
        self.function = function
        self.done = threading.Event()
        self.raised: List[BaseException] = []

    def intercept(self, call: InterceptedCall) -> None:
        try:
            self.function(call)
        except BaseException as error:
            self.raised.append(error)
            raise
        finally:
            self.done.set()

    def check(self) -> None:
        """Waits until the function has returned, which may be after the call's end. It must not have raised."""
        assert self.done.wait(20)
        assert self.raised == []


class Failing(Only):
    """Ends the first ``times`` calls that come to it with ``code``, at their half-close."""

    def __init__(self, times: int, code: StatusCode = StatusCode.UNAVAILABLE) -> None:
        super().__init__(on_half_close=self.refuse, on_start=self.note)
        self.times, self.code = times, code
        self.seen: List[Any] = []

    def note(self, hop: Hop) -> None:
        self.seen.append((hop.metadata.get("x-attempt"), hop.method))

    def refuse(self, hop: Hop) -> None:
        if len(self.seen) <= self.times:
            hop.end(self.code, f"number {len(self.seen)}", trailers={"x-number": str(len(self.seen))})


def below(channel: Channel, function: Callable[[InterceptedCall], None], failing: Failing) -> Function:
    interceptor = Function(function)
    channel.add_interceptor(interceptor, priority=1)
    channel.add_interceptor(failing)
    return interceptor


# ---- next again ----


def test_a_loop_tries_again_with_another_request(channel: Channel) -> None:
    def function(call: InterceptedCall) -> None:
        call.method = "/nobody.Has/This"
        reply = call.next()
        while reply.status is not None and reply.status.code is StatusCode.UNAVAILABLE:
            assert call.method == "/nobody.Has/This"
            call.metadata["x-attempt"] = reply.status.trailers["x-number"]
            call.deadline = 20
            reply = call.next()
        assert reply.status is not None
        assert reply.status.code is StatusCode.UNIMPLEMENTED
        call.method = "/penstock.Echo/Unary"
        reply = call.next()
        assert reply.message == b"ping"
        assert 0 < (call.deadline or 0) <= 20

    failing = Failing(2)
    below(channel, function, failing)
    assert unary(channel, b"ping") == b"ping"
    assert failing.seen == [
        (None, "/nobody.Has/This"),
        ("1", "/nobody.Has/This"),
        ("2", "/nobody.Has/This"),
        ("2", "/penstock.Echo/Unary"),
    ]


def test_the_request_message_is_read_and_changed_after_next(channel: Channel) -> None:
    def function(call: InterceptedCall) -> None:
        assert call.request == b"ping"
        call.request = b"first"
        call.next()
        assert call.request == b"first"
        call.request = b"second"
        assert call.request_messages == [b"second"]
        assert call.next().message == b"second"
        assert call.request == b"second"

    interceptor = below(channel, function, Failing(1))
    assert unary(channel, b"ping") == b"second"
    interceptor.check()


def test_what_an_earlier_reply_has_shown_stays_but_for_its_message(channel: Channel) -> None:
    seen: List[Any] = []

    def function(call: InterceptedCall) -> None:
        first = call.next()
        assert first.headers is not None
        headers, status, message = first.headers, first.status, first.message
        second = call.next()
        assert second.message == message == b"x"
        assert status is not None
        assert status.code is StatusCode.OK
        assert first.status is not None
        assert dict(headers) == dict(first.headers)
        with pytest.raises(StateError, match="again"):
            _ = first.message
        with pytest.raises(StateError, match="again"):
            first.message = b"y"
        second.message = b"second"
        seen.append(first)

    channel.add_interceptor(Function(function))
    assert unary(channel) == b"second"
    replies: List[InterceptedReply] = seen
    for use in (lambda: replies[0].status, lambda: replies[0].headers, lambda: replies[0].message):
        with pytest.raises(StateError, match="function"):
            use()


def test_a_stream_that_ends_before_its_headers_begins_again(channel: Channel) -> None:
    def function(call: InterceptedCall) -> None:
        reply = call.next()
        assert reply.status is not None
        reply = call.next()
        assert reply.status is None
        with pytest.raises(StateError, match="headers of the response have come"):
            call.next()
        with pytest.raises(StateError, match="headers of the response have come"):
            call.method = "/a/b"
        with pytest.raises(StateError):
            call.metadata["x"] = "late"
        assert call.method == "/penstock.Echo/ServerStream"

    below(channel, function, Failing(1))
    assert next(channel.unary_stream("/penstock.Echo/ServerStream")(b"x")) == b"x"


def test_a_call_that_cannot_begin_again_says_why(channel: Channel) -> None:
    def function(call: InterceptedCall) -> None:
        reply = call.next()
        with pytest.raises(StateError, match="the call can't go on: the request is over replay_bytes"):
            call.next()
        assert reply.status is not None
        reply.status.message = "it stays"
        reply.message = b"too"
        reply.status.code = StatusCode.OK

    interceptor = below(channel, function, Failing(1))
    assert unary(channel, bytes(100_000)) == b"too"
    interceptor.check()


def test_a_deadline_ends_another_next(channel: Channel) -> None:
    def function(call: InterceptedCall) -> None:
        assert not call.next().gone
        call.method = "/penstock.Probe/Hang"
        call.deadline = 0.05
        reply = call.next()
        assert reply.gone
        assert reply.status is not None
        assert reply.status.code is StatusCode.DEADLINE_EXCEEDED
        assert call.next().gone

    interceptor = below(channel, function, Failing(1))
    with pytest.raises(RpcError) as caught:
        unary(channel)
    assert caught.value.code() is StatusCode.DEADLINE_EXCEEDED
    interceptor.check()


def test_no_next_after_an_end(channel: Channel) -> None:
    def function(call: InterceptedCall) -> None:
        call.next()
        call.end(StatusCode.ABORTED)
        with pytest.raises(StateError, match="the function has ended or answered the call"):
            call.next()

    interceptor = Function(function)
    channel.add_interceptor(interceptor)
    with pytest.raises(RpcError) as caught:
        unary(channel)
    assert caught.value.code() is StatusCode.ABORTED
    interceptor.check()


# ---- The kept hop ----


def test_another_thread_ends_the_call_while_the_function_waits(channel: Channel) -> None:
    """An idle time-out: a timer's thread ends the call with the function's kept hop."""

    def function(call: InterceptedCall) -> None:
        hop = call.hop
        assert hop is call.hop
        timer = threading.Timer(0.05, lambda: hop.end(StatusCode.ABORTED, "idle"))
        timer.start()
        reply = call.next()
        assert reply.gone
        assert reply.status is None
        timer.join()

    interceptor = Function(function)
    channel.add_interceptor(interceptor)
    with pytest.raises(RpcError, match="ABORTED: idle"):
        channel.unary_unary("/penstock.Probe/Hang")(b"", timeout=30)
    interceptor.check()


def test_the_hop_is_used_after_the_function(channel: Channel) -> None:
    hops: List[Hop] = []

    def function(call: InterceptedCall) -> None:
        assert call.is_secure is False
        hops.append(call.hop)
        assert hops[0].attempt == 1
        call.next()

    channel.add_interceptor(Function(function))
    queue: List[bytes] = [b"1"]
    more = threading.Semaphore(1)

    def requests() -> Iterator[bytes]:
        while more.acquire(timeout=20) and queue:
            yield queue.pop()

    call = channel.stream_stream("/penstock.Echo/Bidi")(requests(), timeout=30)
    assert next(call) == b"1"
    (hop,) = hops
    assert not hop.is_secure
    on_thread(lambda: hop.send_message(b"beat")).join()
    assert next(call) == b"beat"
    with pytest.raises(StateError, match="callback"):
        _ = hop.attempt
    hop.end(StatusCode.ABORTED, "idle")
    with pytest.raises(RpcError, match="ABORTED: idle"):
        next(call)
    with pytest.raises(GoneError):
        hop.end(StatusCode.ABORTED)
    more.release()


def test_the_function_half_closes(channel: Channel) -> None:
    def function(call: InterceptedCall) -> None:
        call.next()
        call.half_close()

    channel.add_interceptor(Function(function))
    release = threading.Event()

    def requests() -> Iterator[bytes]:
        yield b"1"
        release.wait(20)

    call = channel.stream_stream("/penstock.Echo/Bidi")(requests(), timeout=30)
    assert next(call) == b"1"
    with pytest.raises(StopIteration):
        next(call)
    release.set()


def test_a_call_is_let_go_without_the_collector_of_circles(channel: Channel) -> None:
    calls: List[weakref.ref[InterceptedCall]] = []

    def function(call: InterceptedCall) -> None:
        calls.append(weakref.ref(call))
        assert call.hop.kind is call.kind
        call.next()
        call.next()

    channel.add_interceptor(Function(function))
    gc.disable()
    try:
        unary(channel)
        deadline = time.monotonic() + 60
        while calls[0]() is not None and time.monotonic() < deadline:
            time.sleep(0.001)
        assert calls[0]() is None
    finally:
        gc.enable()


# ---- Why ----


def test_a_hop_says_why_not(channel: Channel) -> None:
    whys: List[str] = []

    def why(action: Callable[[], object]) -> None:
        with pytest.raises(StateError) as caught:
            action()
        whys.append(str(caught.value))

    def start(hop: Hop) -> None:
        why(lambda: hop.set_executors(None, None))
        why(lambda: setattr(hop, "count", 3))
        why(lambda: setattr(hop, "message", b"x"))

    def headers(hop: Hop) -> Verdict:
        why(lambda: setattr(hop, "method", "/a/b"))
        ticket = hop.ticket()
        event = ticket.event()
        why(lambda: setattr(event, "message", b"x"))
        why(lambda: setattr(event, "method", "/a/b"))
        ticket.resume()
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_start=start, on_headers=headers))
    assert unary(channel) == b"x"
    assert len(whys) == 6
    for text, part in zip(
        whys,
        ("in create only", "in on_demand only", "no message", "in on_start", "no message", "in on_start"),
    ):
        assert part in text


@pytest.mark.parametrize(
    ("replay_bytes", "max_restarts", "why"), [(1, 0, "over replay_bytes"), (0, 1, "max_restarts is used up")]
)
def test_a_synchronous_interceptor_sets_limits(
    channel: Channel, replay_bytes: int, max_restarts: int, why: str
) -> None:
    def twice(call: InterceptedCall) -> None:
        call.next()
        if max_restarts:
            call.next()
        with pytest.raises(StateError, match=why):
            call.next()

    interceptor = Function(twice)
    interceptor.replay_bytes, interceptor.max_restarts = replay_bytes, max_restarts
    channel.add_interceptor(interceptor, priority=1)
    channel.add_interceptor(Failing(9))
    with pytest.raises(RpcError):
        unary(channel, b"more than one byte")
    interceptor.check()


def test_a_function_runs_once_for_each_attempt(channel: Channel) -> None:
    interceptor = Function(lambda call: check_reply(call.next()))
    interceptor.per_attempt = True
    channel.add_interceptor(interceptor)
    assert unary(channel, b"hi") == b"hi"
    interceptor.check()


def check_reply(reply: InterceptedReply) -> None:
    assert reply.status is not None
    assert reply.status.code is StatusCode.OK
