"""The asynchronous style in the life of a call: its hop and its request, exceptions, restarts, signals."""

from __future__ import annotations

import gc
import threading
from typing import Any, List, Optional

import pytest

import penstock
from helpers import Only, eventually, on_thread, unary
from penstock import (
    Channel,
    Completion,
    CompletionInterceptor,
    Hop,
    Kind,
    Metadata,
    RpcError,
    Status,
    StatusCode,
    Verdict,
)
from penstock._handles.objects import registry
from test_completions import CALLBACKS, Changes, Every, Factory


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


class Signals(CompletionInterceptor):
    """Notes the signals of a call, and doubles the demand."""

    def __init__(self) -> None:
        self.demanded: List[int] = []
        self.sent = 0

    def on_demand(self, hop: Hop) -> None:
        self.demanded.append(hop.count)
        hop.count *= 2

    def on_sent(self, hop: Hop) -> None:
        self.sent += hop.count


def test_signals_come_with_the_hop(channel: Channel) -> None:
    above, below = Signals(), Signals()
    channel.add_interceptor(above, 10)
    channel.add_interceptor(below)
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    assert next(call) == b"first"
    eventually(lambda: above.sent == below.sent == 1)
    assert below.demanded[0] == 2 * above.demanded[0]
    call.cancel()


def test_signals_of_an_object_that_a_factory_has_made(channel: Channel) -> None:
    made: List[Signals] = []

    class MakesSignals(CompletionInterceptor):
        def create(self, method: str, kind: Kind) -> Any:
            made.append(Signals())
            return made[-1]

    channel.add_interceptor(MakesSignals())
    calls = [channel.unary_stream("/penstock.Probe/HangStream")(b"") for _ in range(2)]
    eventually(lambda: [one.sent for one in made] == [1, 1])
    for call in calls:
        call.cancel()


@pytest.mark.parametrize("callback", ["on_demand", "on_sent", "on_pick"])
def test_a_signal_that_raises_ends_the_call(channel: Channel, callback: str) -> None:
    def fail(self: object, hop: Hop) -> None:
        raise ValueError("no")

    fails = type("Fails", (CompletionInterceptor,), {callback: fail, "per_attempt": callback == "on_pick"})
    channel.add_interceptor(fails())
    penstock.set_exception_hook(lambda *_: None)
    try:
        with pytest.raises(RpcError, match=f"{callback} raised ValueError") as caught:
            channel.unary_unary("/penstock.Probe/Hang")(b"", timeout=30)
    finally:
        penstock.set_exception_hook(None)
    assert caught.value.code() is StatusCode.INTERNAL
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("verdict", [None, Verdict.NEXT, Verdict.DROP])
@pytest.mark.parametrize("by_factory", [False, True])
def test_a_picked_address_may_be_refused(channel: Channel, by_factory: bool, verdict: Optional[Verdict]) -> None:
    picked: List[Optional[str]] = []

    class Chooses(CompletionInterceptor):
        per_attempt = True

        def on_pick(self, hop: Hop) -> Optional[Verdict]:
            picked.append(hop.address)
            return verdict

    class MakesOne(CompletionInterceptor):
        per_attempt = True

        def create(self, method: str, kind: Kind) -> Any:
            return Chooses()

    channel.add_interceptor(MakesOne() if by_factory else Chooses())
    if verdict is Verdict.DROP:
        with pytest.raises(RpcError, match="interceptors have refused every endpoint"):
            unary(channel, timeout=30)
    else:
        assert unary(channel, timeout=30) == b"x"
    assert set(picked) == {channel.target}
