"""Places: the order of runtime, channel and call, levels, filters and registrations that change, and removal."""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from typing import Any, Callable, Iterator, List

import pytest

import penstock
from helpers import Only, bidi, on_thread, recorder, unary
from penstock import Channel, Hop, Interceptor, Kind, Level, Runtime, StatusCode, Verdict


def named(log: List[str], name: str) -> Only:
    interceptor = Only(on_start=lambda hop: log.append(name))
    interceptor.name = name
    return interceptor


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as runtime:
        yield runtime


# ---- One order ----


@pytest.mark.parametrize(
    ("tie_order", "expected"),
    [
        ("fifo", ["top", "c1", "r1", "o1", "r2", "c2", "low"]),
        ("lifo", ["top", "c2", "r2", "o1", "r1", "c1", "low"]),
    ],
)
def test_runtime_channel_and_call_stand_in_one_order(
    server: str, runtime: Runtime, tie_order: str, expected: List[str]
) -> None:
    log: List[str] = []
    with Channel(server, tls=False, runtime=runtime, options={"tie_order": tie_order}) as channel:
        channel.add_interceptor(named(log, "c1"))
        runtime.add_interceptor(named(log, "r1"))
        runtime.add_interceptor(named(log, "low"), priority=-(2**31))
        # A call's own interceptors are registered when the call is made: here after "c1" and "r1".
        with_one = Only(on_start=lambda hop: None)
        assert unary(channel, interceptors=[with_one]) == b"x"
        log.clear()
        options = [(named(log, "o1"), 0), (named(log, "top"), 2**31 - 1)]
        call = channel.unary_unary("/penstock.Echo/Unary")
        assert call(b"x", interceptors=options) == b"x"
        if tie_order == "fifo":
            assert log == ["top", "c1", "r1", "o1", "low"]
        else:
            assert log == ["top", "o1", "r1", "c1", "low"]
        runtime.add_interceptor(named(log, "r2"))
        channel.add_interceptor(named(log, "c2"))
        log.clear()
        assert unary(channel) == b"x"
        assert log == [name for name in expected if name not in ("top", "o1")]


def test_levels_and_attempts_stand_below_each_other(channel: Channel) -> None:
    log: List[str] = []

    def at(name: str) -> Only:
        interceptor = Only(on_start=lambda hop: log.append(f"{name} {hop.level.name}"))
        interceptor.name = name
        return interceptor

    channel.add_interceptor(at("attempt"), priority=9, per_attempt=True)
    channel.add_interceptor(at("bytes"), priority=0)
    both = channel.add_interceptor(at("both"), priority=5, level=Level.BOTH)
    channel.add_interceptor(at("object"), priority=-5, level=Level.OBJECT)
    assert unary(channel) == b"x"
    assert log == ["both OBJECT", "object OBJECT", "both BYTES", "bytes BYTES", "attempt BYTES"]
    assert both.level is Level.BOTH
    assert not both.per_attempt
    listed = [(one["name"], one["level"], one["per"]) for one in channel.interceptors]
    assert listed == [
        ("both", "both", "call"),
        ("object", "object", "call"),
        ("bytes", "bytes", "call"),
        ("attempt", "bytes", "attempt"),
    ]
    with pytest.raises(penstock.InvalidArgumentError):
        channel.add_interceptor(at("none"), level=Level.OBJECT, per_attempt=True)


# ---- Per call ----


def test_every_kind_of_call_takes_interceptors_of_its_own(channel: Channel) -> None:
    log: List[str] = []
    mine = [named(log, "mine")]
    methods: List[Callable[[], Any]] = [
        lambda: channel.unary_unary("/penstock.Echo/Unary")(b"x", interceptors=mine),
        lambda: channel.unary_unary("/penstock.Echo/Unary").with_call(b"x", interceptors=mine),
        lambda: list(channel.unary_stream("/penstock.Echo/ServerStream")(b"x", interceptors=mine)),
        lambda: channel.stream_unary("/penstock.Echo/ClientStream")([b"x"], interceptors=mine),
        lambda: channel.stream_unary("/penstock.Echo/ClientStream").with_call([b"x"], interceptors=iter(mine)),
        lambda: list(channel.stream_stream("/penstock.Echo/Bidi")([b"x"], interceptors=mine)),
    ]
    for count, call in enumerate(methods, 1):
        call()
        assert len(log) == count
        unary(channel)
        assert len(log) == count
    assert channel.interceptors == []


def test_an_interceptor_of_one_call_may_answer_it_and_see_objects(channel: Channel) -> None:
    class Stub(Interceptor):
        def on_start(self, hop: Hop) -> Verdict:
            hop.deliver_headers({})
            return Verdict.TAKE

        def on_half_close(self, hop: Hop) -> None:
            hop.deliver_message(b"stub")
            hop.deliver_status(penstock.Status(penstock.StatusCode.OK))

    assert unary(channel, interceptors=[(Stub(), -1)]) == b"stub"
    assert unary(channel) == b"x"

    seen: List[Any] = []

    class Objects(Interceptor):
        level = Level.OBJECT

        def on_send(self, hop: Hop) -> None:
            seen.append(hop.message)

    method = channel.unary_unary(
        "/penstock.Echo/Unary", request_serializer=lambda text: text.encode(), response_deserializer=bytes.decode
    )
    assert method("word", interceptors=[Objects()]) == "word"
    assert seen == ["word"]


def test_interceptors_of_a_call_go_with_it(channel: Channel) -> None:
    from penstock._handles.objects import registry

    before = len(registry)
    for _ in range(20):
        unary(channel, interceptors=[Only(on_start=lambda hop: None), (Only(on_status=lambda hop: None), 7)])
    until = time.monotonic() + 60
    while len(registry) > before and time.monotonic() < until:
        gc.collect()
        unary(channel)
    assert len(registry) == before


# ---- Registrations that change ----


def test_filters_change_and_the_place_stays(channel: Channel) -> None:
    log: List[str] = []
    first = channel.add_interceptor(named(log, "first"))
    second = channel.add_interceptor(named(log, "second"), methods="/a/*")
    channel.add_interceptor(named(log, "third"))
    assert (first.methods, first.kinds, second.methods) == (None, None, ("/a/*",))
    unary(channel)
    assert log == ["first", "third"]
    log.clear()
    second.methods = ["/a/*", "/penstock.Echo/*"]
    first.kinds = Kind.BIDI
    unary(channel)
    assert log == ["second", "third"]
    assert (second.methods, first.kinds) == (("/a/*", "/penstock.Echo/*"), (Kind.BIDI,))
    listed = {one["name"]: (one["methods"], one["kinds"]) for one in channel.interceptors}
    assert listed["first"] == ("*", ["bidi"])
    assert listed["second"][0] == "/a/*,/penstock.Echo/*"
    log.clear()
    second.methods = first.kinds = None
    bidi(channel, [b"1"])
    assert log == ["first", "second", "third"]
    with pytest.raises(penstock.InvalidArgumentError, match="no-slash"):
        second.methods = "no-slash"
    assert second.methods is None
    with pytest.raises(ValueError, match="kinds"):
        second.kinds = ()


def test_replacing_keeps_place_and_filter(channel: Channel) -> None:
    log: List[str] = []
    channel.add_interceptor(named(log, "a"), priority=3)
    old = channel.add_interceptor(named(log, "old"), priority=3, methods="/penstock.Echo/Unary")
    channel.add_interceptor(named(log, "c"), priority=3)
    new = old.replace(named(log, "new"))
    assert new.id != old.id
    assert new.name == "new"
    assert (new.priority, new.methods) == (3, ("/penstock.Echo/Unary",))
    assert old.wait_removed(10)
    unary(channel)
    assert log == ["a", "new", "c"]
    log.clear()
    bidi(channel, [b"1"])
    assert log == ["a", "c"]
    newer = new.replace(named(log, "newer"), methods=None, kinds=Kind.BIDI)
    log.clear()
    bidi(channel, [b"1"])
    assert log == ["a", "newer", "c"]
    with pytest.raises(penstock.NotFoundError):
        old.replace(named(log, "late"))
    # Removing a replaced interceptor does not affect its successor.
    new.remove()
    assert [one["name"] for one in channel.interceptors] == ["a", "newer", "c"]
    newer.remove()
    assert [one["name"] for one in channel.interceptors] == ["a", "c"]


def test_replacing_keeps_what_has_been_changed(channel: Channel) -> None:
    """The priority and the filter are those of the moment; what is given to `replace` is new."""
    log: List[str] = []
    held: List[penstock.WouldBlockError] = []

    def deliver(hop: Hop) -> Verdict:
        """Delivers more than ``hold_bytes``, which were given with the first interceptor."""
        with pytest.raises(penstock.WouldBlockError) as caught:
            deque(map(hop.deliver_message, [bytes(8)] * 9), 0)
        held.append(caught.value)
        hop.deliver_status(StatusCode.ABORTED)
        return Verdict.TAKE

    def listed() -> Any:
        return [(one["name"], one["priority"], one["methods"], one["kinds"]) for one in channel.interceptors]

    first = channel.add_interceptor(named(log, "first"), 1, "/a/*", Kind.UNARY, hold_bytes=20)
    channel.add_interceptor(named(log, "other"), priority=4)
    first.priority = 7
    first.kinds = [Kind.BIDI, Kind.UNARY]
    first.methods = "/penstock.Echo/*"
    second = first.replace(Only(on_start=deliver), name="second")
    place = (second.priority, second.methods, second.kinds)
    assert place == (7, ("/penstock.Echo/*",), (Kind.UNARY, Kind.BIDI))
    assert listed()[0] == ("second", 7, "/penstock.Echo/*", ["unary", "bidi"])
    assert listed()[1][0] == "other"
    with pytest.raises(penstock.RpcError, match="ABORTED"):
        bidi(channel, [])
    assert len(held) == 1
    second.priority = 1
    third = second.replace(named(log, "third"), kinds=None, methods=None, hold_bytes=0)
    assert (third.priority, third.methods, third.kinds) == (1, None, None)
    assert [one[0] for one in listed()] == ["other", "third"]


def test_calls_meet_the_old_or_the_new_one_while_they_are_replaced(channel: Channel) -> None:
    met: List[int] = []

    def numbered(number: int) -> Only:
        return Only(on_start=lambda hop: met.append(number))

    registration = channel.add_interceptor(numbered(0))
    stop = threading.Event()

    def replace() -> None:
        nonlocal registration
        number = 0
        while not stop.is_set():
            number += 1
            registration = registration.replace(numbered(number))

    thread = on_thread(replace)
    for count in range(1, 200):
        unary(channel)
        assert len(met) == count
    stop.set()
    thread.join()
    assert met == sorted(met)


def test_what_is_registered_for_every_channel_can_be_replaced(server: str) -> None:
    log: List[str] = []
    registration = penstock.add_interceptor(named(log, "old"))
    try:
        registration = registration.replace(named(log, "new"))
        with Channel(server, tls=False) as channel:
            unary(channel)
        assert log == ["new"]
    finally:
        registration.remove()


# ---- Lists and removal ----


def test_the_list_tells_calls(channel: Channel) -> None:
    channel.add_interceptor(named([], "one"), priority=-7)
    unary(channel)
    call = channel.stream_stream("/penstock.Echo/Bidi")([b"1"])
    assert next(iter(call)) == b"1"
    (listed,) = channel.interceptors
    assert listed.pop("id") > 0
    assert listed.pop("calls_in_flight") in (0, 1)
    assert listed == {
        "name": "one",
        "priority": -7,
        "place": "channel",
        "level": "bytes",
        "per": "call",
        "methods": "*",
        "kinds": ["unary", "client_stream", "server_stream", "bidi"],
        "calls_seen": 2,
    }
    list(call)
    assert channel.interceptors[0]["calls_in_flight"] == 0


def test_waiting_for_removal(channel: Channel) -> None:
    release = threading.Event()

    def requests() -> Iterator[bytes]:
        yield b"1"
        release.wait(20)

    registration = channel.add_interceptor(recorder([]))
    with pytest.raises(penstock.StateError):
        registration.wait_removed()
    call = channel.stream_stream("/penstock.Echo/Bidi")(requests())
    assert next(iter(call)) == b"1"
    registration.remove()
    assert registration.wait_removed(0) is False
    assert registration.wait_removed(0.15) is False
    done: List[bool] = []
    waiting = on_thread(lambda: done.append(registration.wait_removed()))
    release.set()
    list(call)
    waiting.join(20)
    assert done == [True]
    assert registration.wait_removed(0)


def test_waiting_for_removal_in_a_callback_would_deadlock(channel: Channel) -> None:
    raised: List[BaseException] = []

    def start(hop: Hop) -> None:
        registration.remove()
        try:
            registration.wait_removed()
        except penstock.WouldDeadlockError as error:
            raised.append(error)

    registration = channel.add_interceptor(Only(on_start=start))
    assert unary(channel) == b"x"
    assert len(raised) == 1
    assert registration.wait_removed(10)


def test_a_closed_channel_lets_its_interceptors_go(server: str) -> None:
    channel = Channel(server, tls=False)
    registration = channel.add_interceptor(recorder([]))
    unary(channel)
    channel.close()
    assert registration.wait_removed(10)
