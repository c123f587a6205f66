"""The asynchronous style: callbacks that get a completion."""

from __future__ import annotations

import threading
from typing import Any, Callable, List

import pytest

import penstock
from helpers import bidi, on_thread, unary
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
    _raw,
)
from penstock._raw.constants import E_GONE

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


def raises() -> Any:
    raise ValueError("create")


@pytest.mark.parametrize("make", [object, lambda: None, CompletionInterceptor, raises])
def test_an_event_without_a_callback_may_be_gone(
    channel: Channel, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Any]
) -> None:
    """As if another thread ended the call while the event passed: no callback has failed, but for a `create` that has
    raised."""
    resolve, end = _raw.penstock_hop_resolve, _raw.penstock_hop_end_with

    def gone(handle: int, verdict: int) -> int:
        resolve(handle, verdict)
        return E_GONE

    def ended(handle: int, status: int) -> int:
        end(handle, status)
        return E_GONE

    class Makes(CompletionInterceptor):
        def create(self, method: str, kind: Kind) -> Any:
            return make()

    channel.add_interceptor(Makes())
    monkeypatch.setattr(_raw, "penstock_hop_resolve", gone)
    monkeypatch.setattr(_raw, "penstock_hop_end_with", ended)
    reported: List[str] = []
    penstock.set_exception_hook(lambda name, callback, error: reported.append(callback))
    try:
        if make is raises:
            with pytest.raises(RpcError, match="create"):
                unary(channel)
        else:
            assert unary(channel) == b"x"
    finally:
        penstock.set_exception_hook(None)
    assert reported == (["create"] if make is raises else [])


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
