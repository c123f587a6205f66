"""Callbacks that raise, return something that is no verdict, or do what a callback may not. The call ends with
INTERNAL (law 7 of docs/laws.md)."""

from __future__ import annotations

import gc
import logging
import traceback
from typing import Any, List

import pytest

import penstock
from conftest import await_hanging
from helpers import EVENTS, Only, bidi, eventually, recorder, unary
from penstock import Channel, Hop, Registration, RpcError, StatusCode, Verdict
from penstock._handles.objects import registry

# ---- Law 7 ----


def raising(hop: Hop) -> None:
    raise ZeroDivisionError(f"in {hop.event.name}")


@pytest.mark.parametrize("event", ["create", *EVENTS[:6], "on_demand", "on_sent"])
def test_an_exception_ends_the_call_and_reaches_the_caller(
    channel: Channel, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    channel.add_interceptor(Only(**{event: raising}), name="breaker")
    for call in (lambda: unary(channel, timeout=30), lambda: bidi(channel, [b"1"])):
        with caplog.at_level(logging.CRITICAL, "penstock"), pytest.raises(RpcError) as caught:
            call()
        assert caught.value.code() == StatusCode.INTERNAL
        assert "breaker" in caught.value.details()
        cause = caught.value.__cause__
        assert isinstance(cause, ZeroDivisionError)
        assert "raising" in "".join(traceback.format_tb(cause.__traceback__))
    assert unary_of_another_channel_works(channel)


class FailsAtOnce(penstock.Interceptor):
    def __init__(self) -> None:
        self.seen: List[str] = []

    def create(self, hop: Hop) -> Any:
        self.seen.append("create")
        raise KeyError("no")


class FailsAtOnceWithCallbacks(FailsAtOnce):
    def on_start(self, hop: Hop) -> None:
        self.seen.append("on_start")

    def on_send(self, hop: Hop) -> None:
        self.seen.append("on_send")

    def on_status(self, hop: Hop) -> None:
        self.seen.append("on_status")

    def on_cancel(self, hop: Hop) -> None:
        self.seen.append("on_cancel")

    def destroy(self, hop: Hop) -> None:
        self.seen.append("destroy")


class FailsAtOnceWithCompletions(penstock.CompletionInterceptor):
    def __init__(self) -> None:
        self.seen: List[str] = []

    def create(self, method: str, kind: penstock.Kind) -> Any:
        self.seen.append("create")
        raise KeyError("no")

    def on_status(self, status: penstock.Status, done: penstock.Completion) -> None:
        self.seen.append("on_status")
        done.next()


@pytest.mark.parametrize("kind", [FailsAtOnce, FailsAtOnceWithCallbacks, FailsAtOnceWithCompletions])
@pytest.mark.parametrize("is_executed", [False, True])
def test_create_that_raises_is_named(channel: Channel, kind: Any, is_executed: bool) -> None:
    """The status names it, for the hops above too, and no other callback of the hop is called."""
    heard: List[Any] = []
    above: List[str] = []
    below: List[str] = []
    interceptor = kind()
    interceptor.executor = penstock.SerialExecutor() if is_executed else None
    objects = len(registry)
    penstock.set_exception_hook(lambda *args: heard.append(args[:2]))
    try:
        channel.add_interceptor(Only(on_status=lambda hop: above.append(hop.status.message)), priority=2)
        channel.add_interceptor(interceptor, priority=1, name="breaker")
        channel.add_interceptor(recorder(below))
        for call in (lambda: unary(channel, timeout=30), lambda: bidi(channel, [b"1"])):
            with pytest.raises(RpcError) as caught:
                call()
            assert caught.value.code() == StatusCode.INTERNAL
            assert caught.value.details() == "interceptor 'breaker': create raised KeyError"
            assert isinstance(caught.value.__cause__, KeyError)
    finally:
        penstock.set_exception_hook(None)
        del caught
    assert heard == [("breaker", "create")] * 2
    assert above == ["interceptor 'breaker': create raised KeyError"] * 2
    assert interceptor.seen == ["create"] * 2
    assert below == []
    channel.close()
    eventually(lambda: gc.collect() >= 0 and len(registry) <= objects)


def unary_of_another_channel_works(channel: Channel) -> bool:
    with penstock.Channel(channel.target, tls=False) as other:
        return bool(unary(other) == b"x")


@pytest.mark.parametrize("returned", ["next", True, 99, 5, Verdict.SKIP, Verdict.DROP, Verdict.PAUSE])
def test_nonsense_ends_the_call(channel: Channel, returned: Any, caplog: pytest.LogCaptureFixture) -> None:
    channel.add_interceptor(Only(on_start=lambda hop: returned), name="nonsense")
    with caplog.at_level(logging.CRITICAL, "penstock"), pytest.raises(RpcError, match="nonsense") as caught:
        unary(channel, timeout=30)
    assert caught.value.code() == StatusCode.INTERNAL


def test_exceptions_are_logged_or_go_to_the_hook(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    token = channel.add_interceptor(Only(on_start=raising), name="breaker")
    with pytest.raises(RpcError):
        unary(channel)
    (record,) = [record for record in caplog.records if record.name == "penstock"]
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    assert "breaker" in record.getMessage()
    caplog.clear()
    heard: List[Any] = []
    penstock.set_exception_hook(lambda *args: heard.append(args))
    try:
        with pytest.raises(RpcError):
            unary(channel)
        token.remove()
        channel.add_interceptor(Only(destroy=raising), name="at the end")
        assert unary(channel) == b"x"
    finally:
        penstock.set_exception_hook(None)
    assert [(name, callback, type(error)) for name, callback, error in heard] == [
        ("breaker", "on_start", ZeroDivisionError),
        ("at the end", "destroy", ZeroDivisionError),
    ]
    assert caplog.records == []


def test_an_exception_in_on_cancel_is_logged(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    def finish(hop: Hop) -> None:
        hop.end(StatusCode.ABORTED, "above")

    channel.add_interceptor(Only(on_headers=finish), priority=1)
    channel.add_interceptor(Only(on_cancel=raising), name="below")
    with pytest.raises(RpcError, match="ABORTED: above") as caught:
        unary(channel)
    assert caught.value.code() == StatusCode.ABORTED
    assert ["below" in record.getMessage() for record in caplog.records] == [True]


def test_a_blocking_call_in_a_callback_is_refused(channel: Channel) -> None:
    caught: List[Exception] = []

    def start(hop: Hop) -> None:
        if hop.method.endswith("Unary"):
            try:
                list(channel.unary_stream("/penstock.Echo/ServerStream")(b"x"))
            except penstock.WouldDeadlockError as error:
                caught.append(error)

    channel.add_interceptor(Only(on_start=start))
    assert unary(channel) == b"x"
    assert len(caught) == 1


def test_callbacks_may_remove_themselves_and_close_the_channel(server: str) -> None:
    channel = penstock.Channel(server, tls=False)
    tokens: List[Registration] = []

    def once(hop: Hop) -> None:
        tokens[0].remove()

    tokens.append(channel.add_interceptor(Only(on_start=once)))
    assert unary(channel) == b"x"
    assert channel.interceptors == []
    channel.add_interceptor(Only(on_start=lambda hop: channel.close()))
    with pytest.raises(RpcError) as caught:
        unary(channel)
    assert caught.value.code() == StatusCode.CANCELLED


def test_cancel_is_told_to_the_hops(channel: Channel) -> None:
    log: List[str] = []
    channel.add_interceptor(recorder(log, events=("on_status", "on_cancel")))
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    assert next(call) == b"first"
    await_hanging(channel, 1)
    log.clear()
    call.cancel()
    assert call.code() == StatusCode.CANCELLED
    assert log == ["on_status"]
