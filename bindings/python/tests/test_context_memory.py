"""Contexts keep nothing longer than their calls need them, and cost nothing where no function needs one."""

from __future__ import annotations

import contextvars
import gc
import threading
import weakref
from typing import Any, Callable, List, Optional, Tuple

import pytest

import penstock
from helpers import Only, unary
from penstock import Channel, Hop, Level
from penstock._handles.context import CallContext
from penstock._handles.objects import registry
from test_contexts import FIELD, USER, Plain, Seen
from test_leaks import nothing_registered, soon


class Thing:
    """Something that a context refers to."""

    call: Optional[object] = None


THING: contextvars.ContextVar[Thing] = contextvars.ContextVar("THING")


def in_context(action: Callable[[Thing], Any]) -> Tuple[Any, weakref.ref[Thing]]:
    """Runs ``action`` in a context that refers to a `Thing`; nothing else keeps the thing."""
    thing = Thing()

    def run() -> Any:
        THING.set(thing)
        return action(thing)

    return contextvars.copy_context().run(run), weakref.ref(thing)


def test_no_reference_after_the_call_s_end(channel: Channel) -> None:
    channel.add_interceptor(Only(on_start=lambda hop: None, create=lambda hop: THING.get().call))
    channel.add_interceptor(Only(on_receive=lambda hop: None), level=Level.OBJECT)
    gc.collect()
    gc.disable()
    try:
        call = channel.unary_unary("/penstock.Echo/Unary", bytes, bytes)
        for kept in (
            in_context(lambda thing: call.with_call(b"x")),
            in_context(lambda thing: failure(channel)),
            in_context(lambda thing: read(channel)),
        ):
            gc.collect()
            assert kept[1]() is None
            assert kept[0] is not None
    finally:
        gc.enable()


def test_options_that_are_kept_for_later_calls_keep_no_context(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CallContext, "outlives_calls", False)
    channel.add_interceptor(Only(on_start=lambda hop: None))
    for _ in range(3):
        kept = in_context(lambda thing: unary(channel))
        gc.collect()
        assert kept[1]() is None


def failure(channel: Channel) -> penstock.RpcError:
    with pytest.raises(penstock.RpcError) as raised:
        channel.unary_unary("/penstock.Echo/NoSuchMethod")(b"x")
    return raised.value.with_traceback(None)


def read(channel: Channel) -> penstock.Call:
    call = channel.stream_stream("/penstock.Echo/Bidi")([b"x"])
    assert list(call) == [b"x"]
    return call


def test_a_stream_that_its_context_refers_to_is_cancelled_when_both_are_dropped(channel: Channel) -> None:
    ended = threading.Event()
    channel.add_interceptor(Only(create=lambda hop: None, destroy=lambda hop: ended.set()))

    def begin(thing: Thing) -> None:
        thing.call = channel.unary_stream("/penstock.Probe/HangStream")(b"x")

    thing = in_context(begin)[1]
    gc.collect()
    assert ended.wait(20)
    assert thing() is None


def test_a_dropped_stream_ends_in_its_context(channel: Channel) -> None:
    users: List[str] = []
    ended = threading.Event()

    def destroy(hop: Hop) -> None:
        users.append(USER.get())
        ended.set()

    channel.add_interceptor(Only(create=lambda hop: None, destroy=destroy))
    USER.set("me")
    call = channel.stream_stream("/penstock.Echo/Bidi")([])
    context = contextvars.copy_context()
    USER.set("another")
    del call, context
    assert ended.wait(20)
    assert users == ["me"]


def test_a_context_of_a_registration_does_not_keep_its_channel(server: str) -> None:
    def begin(thing: Thing) -> None:
        channel = Channel(server, tls=False)
        thing.call = channel
        channel.add_interceptor(Only(on_start=lambda hop: None))
        channel.add_interceptor(Only(on_connection=lambda event: None))
        channel.set_picker(lambda pick: 0)
        channel.watch_connectivity(lambda state: None)
        assert unary(channel) == b"x"

    thing = in_context(begin)[1]
    gc.collect()
    assert thing() is None


def test_nothing_is_left_in_the_registry(channel: Channel) -> None:
    # Leftovers of other tests may go meanwhile.
    assert soon(nothing_registered)
    channel.add_interceptor(Plain(Seen()))
    before = len(registry)
    for _ in range(20):
        unary(channel, metadata={FIELD: "nobody"})
        list(channel.stream_stream("/penstock.Echo/Bidi")([b"x"], metadata={FIELD: "nobody"}))
    assert soon(lambda: len(registry) == before)


def test_a_unary_call_without_callbacks_makes_no_context(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock._calls import options

    def give(*_: Any) -> None:
        raise AssertionError("a context was given to a call that has no callbacks")

    monkeypatch.setattr(options, "give", give)
    assert unary(channel) == b"x"
    channel.add_interceptor(penstock.ready.Metrics())
    assert unary(channel) == b"x"


def test_the_context_of_one_call_after_another() -> None:
    """A context that serves one call after another is empty between them."""
    first, second = contextvars.copy_context(), contextvars.copy_context()
    made = CallContext(first, False, (), None)
    assert made.get() is first
    made.lend(None, ())
    assert made.get() is None
    made.lend(second, (THING,))
    assert made.get() is second
    assert made.keeps == (THING,)


def test_a_lent_context_is_kept_from_the_end_of_its_call() -> None:
    lent, dropped = contextvars.copy_context(), contextvars.copy_context()
    made, late = CallContext(lent, True, (), None), CallContext(dropped, True, (), None)
    assert made.get() is lent
    assert late.get() is dropped
    made.keep()
    del lent, dropped
    gc.collect()
    late.keep()
    assert isinstance(made.get(), contextvars.Context)
    assert late.get() is None
