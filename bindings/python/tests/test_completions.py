"""The asynchronous style: callbacks that get a completion."""

from __future__ import annotations

import gc
import threading
from typing import Any, Callable, List, Optional

import pytest

import penstock
from helpers import Only, bidi, on_thread, unary
from penstock import (
    Channel,
    Completion,
    CompletionInterceptor,
    Kind,
    Metadata,
    RpcError,
    Status,
    StatusCode,
    Verdict,
)
from penstock._objects import registry

CALLBACKS = ("on_start", "on_send", "on_half_close", "on_headers", "on_receive", "on_status")


class Every(CompletionInterceptor):
    """In each callback, calls the test's function ``end`` with the callback's name and its completion."""

    name = "every"

    def __init__(self, end: Callable[[str, Completion], object]) -> None:
        self.end = end
        self.seen: List[str] = []

    def came(self, callback: str, done: Completion) -> None:
        self.seen.append(callback)
        self.end(callback, done)

    def on_start(self, metadata: Metadata, done: Completion) -> None:
        self.came("on_start", done)

    def on_send(self, message: bytes, done: Completion) -> None:
        self.came("on_send", done)

    def on_half_close(self, done: Completion) -> None:
        self.came("on_half_close", done)

    def on_headers(self, metadata: Metadata, done: Completion) -> None:
        self.came("on_headers", done)

    def on_receive(self, message: bytes, done: Completion) -> None:
        self.came("on_receive", done)

    def on_status(self, status: Status, done: Completion) -> None:
        self.came("on_status", done)


def test_completed_in_the_callback(channel: Channel) -> None:
    interceptor = Every(lambda callback, done: done.next())
    channel.add_interceptor(interceptor)
    assert unary(channel) == b"x"
    assert sorted(interceptor.seen) == sorted(CALLBACKS)
    assert bidi(channel, [b"1", b"2", b"3"]) == [b"1", b"2", b"3"]
    assert interceptor.seen.count("on_send") == interceptor.seen.count("on_receive") == 4


def test_completed_later_on_another_thread(channel: Channel) -> None:
    threads: List[threading.Thread] = []
    interceptor = Every(lambda callback, done: threads.append(on_thread(done.next)))
    channel.add_interceptor(interceptor)
    messages = [bytes([n]) for n in range(20)]
    assert bidi(channel, messages) == messages
    for thread in threads:
        thread.join()


class Changes(CompletionInterceptor):
    def on_start(self, metadata: Metadata, done: Completion) -> None:
        metadata["x-mine"] = "1"
        done.hop.set_value("key", "value")
        done.next()
        with pytest.raises(penstock.StateError):
            metadata["x-mine"] = "2"

    def on_send(self, message: bytes, done: Completion) -> None:
        on_thread(lambda: done.next(message + b"?")).join()

    def on_receive(self, message: bytes, done: Completion) -> None:
        done.next(message + b"!")

    def on_status(self, status: Status, done: Completion) -> None:
        def finish() -> None:
            status.message = "changed"
            status.trailers["x-late"] = "2"
            done.next()

        on_thread(finish)


def test_values_are_changed_now_and_later(channel: Channel) -> None:
    channel.add_interceptor(Changes())
    response, call = channel.unary_unary("/penstock.Echo/Unary").with_call(b"x", timeout=30)
    assert response == b"x?!"
    assert call.details() == "changed"
    assert ("x-late", "2") in call.trailing_metadata()
    assert call.values["key"] == "value"


class PerCall:
    def __init__(self, method: str, kind: Kind) -> None:
        self.method = method
        self.kind = kind
        self.messages = 0

    def on_receive(self, message: bytes, done: Completion) -> None:
        self.messages += 1
        done.next()


class Factory(CompletionInterceptor):
    def __init__(self) -> None:
        self.calls: List[PerCall] = []

    def create(self, method: str, kind: Kind) -> Any:
        if kind is Kind.CLIENT_STREAM:
            return Verdict.SKIP
        self.calls.append(PerCall(method, kind))
        return self.calls[-1]


def test_a_factory_gives_each_call_its_own_object_or_declines(channel: Channel) -> None:
    factory = Factory()
    channel.add_interceptor(factory)
    unary(channel)
    assert bidi(channel, [b"1", b"2"]) == [b"1", b"2"]
    channel.stream_unary("/penstock.Echo/ClientStream")(iter([b"1"]))
    assert [(call.method, call.kind, call.messages) for call in factory.calls] == [
        ("/penstock.Echo/Unary", Kind.UNARY, 1),
        ("/penstock.Echo/Bidi", Kind.BIDI, 2),
    ]


class Starts(CompletionInterceptor):
    """Overrides a single callback."""

    def __init__(self) -> None:
        self.starts = 0

    def on_start(self, metadata: Metadata, done: Completion) -> None:
        self.starts += 1
        done.next()


class Creates(Starts):
    """A factory that overrides a single callback besides `create`, which returns what the test gives."""

    def __init__(self, made: Any) -> None:
        super().__init__()
        self.made = made

    def create(self, method: str, kind: Kind) -> Any:
        return self.made


class Refers(CompletionInterceptor):
    """Overrides every callback, and lets the base class answer."""

    def __init__(self) -> None:
        self.seen: List[str] = []

    def on_start(self, metadata: Metadata, done: Completion) -> None:
        self.seen.append("on_start")
        super().on_start(metadata, done)

    def on_send(self, message: bytes, done: Completion) -> None:
        self.seen.append("on_send")
        super().on_send(message, done)

    def on_half_close(self, done: Completion) -> None:
        self.seen.append("on_half_close")
        super().on_half_close(done)

    def on_headers(self, metadata: Metadata, done: Completion) -> None:
        self.seen.append("on_headers")
        super().on_headers(metadata, done)

    def on_receive(self, message: bytes, done: Completion) -> None:
        self.seen.append("on_receive")
        super().on_receive(message, done)

    def on_status(self, status: Status, done: Completion) -> None:
        self.seen.append("on_status")
        super().on_status(status, done)


def test_events_pass_whose_callbacks_are_not_overridden(channel: Channel) -> None:
    itself, other, nothing = Creates(None), Starts(), Creates(object())
    for interceptor in (itself, Creates(other), Creates(CompletionInterceptor()), nothing):
        channel.add_interceptor(interceptor)
    assert unary(channel, b"x") == b"x"
    assert bidi(channel, [b"1", b"2"]) == [b"1", b"2"]
    assert (itself.starts, other.starts, nothing.starts) == (2, 2, 0)


def test_the_base_class_lets_each_event_pass(channel: Channel) -> None:
    interceptor = Refers()
    channel.add_interceptor(interceptor)
    assert unary(channel, b"x") == b"x"
    assert sorted(interceptor.seen) == sorted(CALLBACKS)


@pytest.mark.parametrize("callback", CALLBACKS)
@pytest.mark.parametrize("later", [False, True])
def test_cancel_at_every_event(channel: Channel, callback: str, later: bool) -> None:
    def end(which: str, done: Completion) -> None:
        if which != callback:
            done.next()
        elif later:
            on_thread(lambda: done.end(StatusCode.DATA_LOSS, "not today", trailers={"x-t": "1"}))
        else:
            done.end(StatusCode.DATA_LOSS, "not today", trailers={"x-t": "1"})

    channel.add_interceptor(Every(end))
    with pytest.raises(RpcError) as caught:
        unary(channel, timeout=30)
    assert caught.value.code() == StatusCode.DATA_LOSS
    assert caught.value.details() == "not today"
    assert ("x-t", "1") in caught.value.trailing_metadata()


@pytest.mark.parametrize("callback", CALLBACKS)
@pytest.mark.parametrize("later", [False, True])
def test_a_dropped_completion_is_no_hang(channel: Channel, callback: str, later: bool) -> None:
    kept: List[Completion] = []

    def end(which: str, done: Completion) -> None:
        if which != callback:
            done.next()
        elif later:
            kept.append(done)
            on_thread(kept.clear)

    channel.add_interceptor(Every(end))
    with pytest.raises(RpcError) as caught:
        unary(channel, timeout=30)
    assert caught.value.code() == StatusCode.INTERNAL
    assert caught.value.details() == "interceptor 'every' released an event that it had not resolved"


def test_a_second_call_and_a_late_one_are_errors(channel: Channel) -> None:
    kept: List[Completion] = []

    def end(which: str, done: Completion) -> None:
        if which == "on_headers":
            with pytest.raises(penstock.StateError):
                done.next(b"no message")
            with pytest.raises(penstock.InvalidArgumentError):
                done.resolve(Verdict.DROP)
        done.next()
        with pytest.raises(penstock.AlreadyError):
            done.next()
        with pytest.raises(penstock.AlreadyError):
            done.end(StatusCode.ABORTED)
        kept.append(done)

    channel.add_interceptor(Every(end))
    assert unary(channel) == b"x"
    with pytest.raises(penstock.AlreadyError):
        kept[0].next()
    with pytest.raises(penstock.StateError):
        _ = kept[0].hop

    open_ones: List[Completion] = []
    channel.add_interceptor(Every(lambda which, done: open_ones.append(done)), priority=1)
    with pytest.raises(RpcError) as caught:
        unary(channel, timeout=0.05)
    assert caught.value.code() == StatusCode.DEADLINE_EXCEEDED
    with pytest.raises(penstock.GoneError):
        open_ones[0].next()


@pytest.mark.parametrize("later", [False, True])
def test_a_completion_that_has_been_called_does_no_more(channel: Channel, later: bool) -> None:
    """After its first call a completion refuses every further one. The C function would not: in C the handle is a
    retained hop by then, which may end the call at any time."""
    refused: List[str] = []

    def again(done: Completion) -> None:
        actions: List[Callable[[], object]] = [
            done.next,
            lambda: done.end(StatusCode.ABORTED),
            lambda: done.resolve(Verdict.NEXT),
        ]
        for action in actions:
            with pytest.raises(penstock.AlreadyError):
                action()
        with pytest.raises(penstock.StateError, match="has been called"):
            _ = done.method
        refused.append("three")

    kept: List[Completion] = []

    def end(which: str, done: Completion) -> None:
        done.next()
        kept.append(done)
        if not later:
            again(done)

    channel.add_interceptor(Every(end))
    call = channel.stream_stream("/penstock.Echo/Bidi")(iter([b"1", b"2"]), timeout=30)
    assert next(call) == b"1"
    if later:
        on_thread(lambda: [again(done) for done in list(kept)]).join()
    assert list(call) == [b"2"]
    assert refused


def test_a_held_event_lets_later_ones_be_seen(channel: Channel) -> None:
    held: List[Completion] = []
    closed = threading.Event()

    def end(which: str, done: Completion) -> None:
        if which == "on_send":
            done.hold()
            held.append(done)
        else:
            done.next()
            with pytest.raises(penstock.AlreadyError):
                done.hold()
        if which == "on_half_close":
            closed.set()

    channel.add_interceptor(Every(end))
    call = channel.stream_stream("/penstock.Echo/Bidi")(iter([b"1", b"2"]), timeout=30)
    assert closed.wait(20)
    assert len(held) == 2
    with pytest.raises(penstock.StateError, match="the callback has returned"):
        held[0].hold()
    held[1].next(b"two")
    held[0].next()
    assert list(call) == [b"1", b"two"]


def test_one_of_many_threads_calls_it(channel: Channel) -> None:
    results: List[object] = []
    ready = threading.Barrier(8)
    threads: List[threading.Thread] = []

    def call(done: Completion, ends: bool) -> None:
        ready.wait(20)
        try:
            done.end(StatusCode.ABORTED) if ends else done.next()
            results.append("cancel" if ends else "next")
        except penstock.AlreadyError:
            results.append(None)

    def start(which: str, done: Completion) -> None:
        if which == "on_start":
            threads.extend(on_thread(lambda ends=bool(n % 2): call(done, ends)) for n in range(8))
        else:
            done.next()

    channel.add_interceptor(Every(start))
    for _ in range(20):
        results.clear()
        try:
            won = "next" if unary(channel, timeout=30) == b"x" else None
        except RpcError as error:
            won = "cancel" if error.code() is StatusCode.ABORTED else None
        for thread in threads:
            thread.join()
        threads.clear()
        assert sorted(results, key=str) == sorted([won, *[None] * 7], key=str)


def test_a_refused_verdict_leaves_it_open(channel: Channel) -> None:
    def end(which: str, done: Completion) -> None:
        if which == "on_start":
            with pytest.raises(penstock.InvalidArgumentError):
                done.resolve(Verdict.RESTART)
            assert done.method == "/penstock.Echo/Unary"
            done.end(StatusCode.ABORTED, "still open")
        else:
            done.next()

    channel.add_interceptor(Every(end))
    with pytest.raises(RpcError, match="ABORTED: still open"):
        unary(channel)


def test_the_hop_of_a_completion_ends_an_idle_call(channel: Channel) -> None:
    """An idle time-out: on a timer's thread, the hop ends the call while no event of the call waits."""
    timers: List[threading.Timer] = []

    class Idle(CompletionInterceptor):
        def on_start(self, metadata: Metadata, done: Completion) -> None:
            hop = done.hop
            timers.append(threading.Timer(0.1, lambda: hop.end(StatusCode.ABORTED, "idle")))
            done.next()
            timers[-1].start()

    channel.add_interceptor(Idle())
    with pytest.raises(RpcError, match="ABORTED: idle"):
        channel.unary_unary("/penstock.Probe/Hang")(b"", timeout=30)
    timers[0].join()


def test_a_completion_shows_the_request(channel: Channel) -> None:
    shown: List[Any] = []

    class Shows(CompletionInterceptor):
        replay_bytes = 1000

        def on_start(self, metadata: Metadata, done: Completion) -> None:
            def look() -> None:
                shown.append((done.method, 10 < (done.deadline or 0) <= 30, done.user_agent, done.content_subtype))
                done.next()

            on_thread(look)

        def on_status(self, status: Status, done: Completion) -> None:
            def again() -> None:
                done.method = "/penstock.Echo/Unary"
                done.deadline = 60
                done.resolve(Verdict.RESTART)

            on_thread(done.next if status.code is StatusCode.OK else again)

    channel.add_interceptor(Shows())
    assert unary_of(channel, "/nobody.Has/This") == b"x"
    assert shown == [("/nobody.Has/This", True, "", "")]


def unary_of(channel: Channel, method: str) -> Any:
    return channel.unary_unary(method)(b"x", timeout=30)


def test_an_exception_ends_the_call(channel: Channel) -> None:
    def end(which: str, done: Completion) -> None:
        if which == "on_receive":
            raise ValueError("mine")
        done.next()

    heard: List[Any] = []
    penstock.set_exception_hook(lambda *what: heard.append(what[:2]))
    try:
        channel.add_interceptor(Every(end))
        with pytest.raises(RpcError) as caught:
            unary(channel)
    finally:
        penstock.set_exception_hook(None)
    assert caught.value.code() == StatusCode.INTERNAL
    assert "'every'" in (caught.value.details() or "")
    assert isinstance(caught.value.__cause__, ValueError)
    assert heard == [("every", "on_receive")]


def test_an_exception_in_create_reaches_the_caller(channel: Channel) -> None:
    class Broken(CompletionInterceptor):
        def create(self, method: str, kind: Kind) -> object:
            raise ValueError("mine")

    penstock.set_exception_hook(lambda *what: None)
    try:
        channel.add_interceptor(Broken())
        with pytest.raises(RpcError, match="'Broken'") as caught:
            unary(channel)
    finally:
        penstock.set_exception_hook(None)
    assert caught.value.code() == StatusCode.INTERNAL
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("callback", CALLBACKS)
def test_an_exception_after_the_completion_was_called_ends_the_call_too(channel: Channel, callback: str) -> None:
    def end(which: str, done: Completion) -> None:
        done.next()
        if which == callback:
            raise ValueError("mine")

    penstock.set_exception_hook(lambda *what: None)
    try:
        channel.add_interceptor(Every(end))
        with pytest.raises(RpcError, match=f"'every': {callback} raised") as caught:
            unary(channel)
    finally:
        penstock.set_exception_hook(None)
    assert isinstance(caught.value.__cause__, ValueError)


class Refresh(CompletionInterceptor):
    """Restarts a call that the server refuses, when another thread has got a new token."""

    replay_bytes = 1000

    def on_start(self, metadata: Metadata, done: Completion) -> None:
        metadata["authorization"] = "old"
        done.next()

    def on_status(self, status: Status, done: Completion) -> None:
        if status.code is StatusCode.UNAUTHENTICATED and done.hop.can_restart:
            on_thread(lambda: self.refresh(done))
        else:
            done.next()

    def refresh(self, done: Completion) -> None:
        self.request = done.request_metadata
        self.request["authorization"] = "new"
        assert done.request_messages == [b"x"]
        done.set_request_message(0, b"y")
        done.resolve(Verdict.RESTART)


def test_restart_by_completion(channel: Channel) -> None:
    seen: List[Any] = []

    def refuse_old(hop: penstock.Hop) -> None:
        if seen[-1] == "old":
            hop.end(StatusCode.UNAUTHENTICATED, "who")

    refresh = Refresh()
    channel.add_interceptor(refresh, priority=1)
    note = Only(on_start=lambda hop: seen.append(hop.metadata["authorization"]), on_half_close=refuse_old)
    channel.add_interceptor(note)
    assert unary(channel, timeout=30) == b"y"
    assert seen == ["old", "new"]
    with pytest.raises(penstock.StateError):
        refresh.request["authorization"] = "newer"


def test_a_hop_above_tells_by_on_cancel(channel: Channel) -> None:
    told: List[Optional[StatusCode]] = []

    class Told(CompletionInterceptor):
        def on_cancel(self, status: Status) -> None:
            told.append(status.code)

    channel.add_interceptor(Told())
    channel.add_interceptor(Only(on_receive=lambda hop: hop.end(StatusCode.ABORTED)), priority=1)
    with pytest.raises(RpcError):
        unary(channel)
    assert told == [StatusCode.ABORTED]


def test_coroutines_are_refused(channel: Channel) -> None:
    class Coroutine(CompletionInterceptor):
        async def on_start(self, metadata: Metadata, done: Completion) -> None:  # type: ignore[override]
            done.next()

    with pytest.raises(TypeError, match="async"):
        channel.add_interceptor(Coroutine())


def test_nothing_is_left(channel: Channel) -> None:
    gc.collect()
    before = len(registry)
    registrations = [channel.add_interceptor(Factory()), channel.add_interceptor(Changes())]
    for _ in range(20):
        unary(channel)
    for registration in registrations:
        registration.remove()
    gc.collect()
    assert len(registry) == before


@pytest.mark.parametrize("times", [1, 3])
def test_max_restarts_of_a_completion_interceptor(channel: Channel, times: int) -> None:
    attempts: List[int] = []

    class Stubborn(CompletionInterceptor):
        replay_bytes = 100
        max_restarts = times

        def on_status(self, status: Status, done: Completion) -> None:
            done.resolve(Verdict.RESTART)

    def fail(hop: penstock.Hop) -> None:
        attempts.append(hop.attempt)
        hop.end(StatusCode.UNAVAILABLE)

    channel.add_interceptor(Stubborn(), priority=2)
    channel.add_interceptor(Only(on_start=fail), priority=1)
    with pytest.raises(RpcError, match="UNAVAILABLE"):
        unary(channel)
    assert attempts == list(range(1, times + 2))
