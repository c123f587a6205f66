"""Interceptors: their callbacks, their order, and their state."""

from __future__ import annotations

import threading
from typing import Any, Dict, Iterator, List

import pytest

import penstock
from conftest import json_bytes
from helpers import EVENTS, Only, bidi, recorder, unary
from penstock import Channel, EventKind, Hop, Interceptor, Kind, RpcError, Verdict

# ---- Callbacks and their order ----


def test_every_event_of_a_call_is_seen_once_in_order(channel: Channel) -> None:
    log: List[str] = []
    channel.add_interceptor(recorder(log, events=EVENTS[:7]))
    assert unary(channel) == b"x"
    outbound = [event for event in log if event in ("on_start", "on_send", "on_half_close")]
    inbound = [event for event in log if event in ("on_headers", "on_receive", "on_status")]
    assert outbound == ["on_start", "on_send", "on_half_close"]
    assert inbound == ["on_headers", "on_receive", "on_status"]
    assert "on_cancel" not in log
    log.clear()
    assert bidi(channel, [b"1", b"2"]) == [b"1", b"2"]
    assert [log.count(event) for event in EVENTS[:7]] == [1, 2, 1, 1, 2, 1, 0]


def test_signals_carry_their_numbers(channel: Channel) -> None:
    counts: Dict[str, List[int]] = {"on_demand": [], "on_sent": []}
    channel.add_interceptor(
        Only(
            on_demand=lambda hop: counts["on_demand"].append(hop.count),
            on_sent=lambda hop: counts["on_sent"].append(hop.count),
        )
    )
    assert bidi(channel, [b"1", b"2", b"3"]) == [b"1", b"2", b"3"]
    assert sum(counts["on_sent"]) == 3
    assert sum(counts["on_demand"]) >= 3


def test_what_a_hop_tells_of_its_call(channel: Channel) -> None:
    told: Dict[str, Any] = {}

    def start(hop: Hop) -> None:
        told.update(method=hop.method, kind=hop.kind, target=hop.target, authority=hop.authority)
        told.update(event=hop.event, deadline=hop.deadline, call_id=hop.call_id, count=hop.count)

    channel.add_interceptor(Only(on_start=start))
    call = channel.stream_stream("/penstock.Echo/Bidi")([b"1"], timeout=20)
    assert list(call) == [b"1"]
    assert 19 < told.pop("deadline") <= 20
    assert told == {
        "method": "/penstock.Echo/Bidi",
        "kind": Kind.BIDI,
        "target": channel.target,
        "authority": channel.target,
        "event": EventKind.START,
        "call_id": call.call_id,
        "count": 0,
    }
    unary(channel)
    assert told["deadline"] is None
    assert told["kind"] is Kind.UNARY
    assert told["call_id"] > call.call_id


def test_only_what_is_overridden_is_called() -> None:
    from penstock._interceptors.interceptor import overridden

    class Some(Interceptor):
        def on_start(self, hop: Hop) -> None: ...

        def on_status(self, hop: Hop) -> None: ...

    class More(Some):
        def destroy(self, hop: Hop) -> None: ...

    class NotOne:
        def on_send(self, hop: Hop) -> None: ...

    assert set(overridden(Interceptor())) == set()
    assert set(overridden(Some())) == {"on_start", "on_status"}
    assert set(overridden(More())) == {"destroy", "on_start", "on_status"}
    assert set(overridden(NotOne())) == {"on_send"}


def test_async_callbacks_are_refused(channel: Channel) -> None:
    class Later(Interceptor):
        async def on_start(self, hop: Hop) -> None:  # type: ignore[override]
            ...

    with pytest.raises(TypeError, match="async"):
        channel.add_interceptor(Later())


# ---- The place in the chain ----


def test_higher_priorities_are_outside(server: str) -> None:
    log: List[Any] = []
    events = ("on_start", "on_status")
    inner, outer = recorder(log, "inner", events), recorder(log, "outer", events)
    given = [(inner, -5), recorder(log, "middle", events), (outer, 5)]
    with penstock.Channel(server, tls=False, interceptors=given) as channel:
        unary(channel)
        names = [name for name, event in log if event == "on_start"]
        assert names == ["outer", "middle", "inner"]
        assert [name for name, event in log if event == "on_status"] == names[::-1]
        listed = channel.interceptors
        assert [entry["name"] for entry in listed] == names
        assert [entry["priority"] for entry in listed] == [5, 0, -5]


def test_equal_priorities_keep_the_order_of_registration(channel: Channel) -> None:
    log: List[Any] = []
    for name in "abc":
        channel.add_interceptor(recorder(log, name, ("on_start",)))
    unary(channel)
    assert [name for name, _ in log] == ["a", "b", "c"]


def test_a_registration_can_be_moved_and_removed(channel: Channel) -> None:
    log: List[Any] = []
    first = channel.add_interceptor(recorder(log, "first", ("on_start",)), priority=2)
    second = channel.add_interceptor(recorder(log, "second", ("on_start",)), priority=1)
    assert first.id != second.id
    second.priority = 3
    assert second.priority == 3
    unary(channel)
    assert [name for name, _ in log] == ["second", "first"]
    assert [entry["id"] for entry in channel.interceptors] == [second.id, first.id]
    second.remove()
    second.remove()
    log.clear()
    unary(channel)
    assert [name for name, _ in log] == ["first"]
    with pytest.raises(penstock.NotFoundError):
        second.priority = 1
    for wrong in (2**31, -(2**31) - 1):
        with pytest.raises(penstock.InvalidArgumentError):
            first.priority = wrong
    with pytest.raises(TypeError):
        channel.add_interceptor(Only(), priority="high")  # type: ignore[arg-type]


def test_methods_and_kinds_are_filters(channel: Channel) -> None:
    log: List[Any] = []
    channel.add_interceptor(recorder(log, "exact", ("on_start",)), methods="/penstock.Echo/Unary")
    channel.add_interceptor(recorder(log, "service", ("on_start",)), methods=["/a.B/C", "/penstock.Echo/*"])
    channel.add_interceptor(recorder(log, "other", ("on_start",)), methods="/other.Service/*")
    channel.add_interceptor(recorder(log, "streams", ("on_start",)), kinds=[Kind.BIDI, Kind.SERVER_STREAM])
    channel.add_interceptor(recorder(log, "unary", ("on_start",)), kinds=Kind.UNARY)
    unary(channel)
    assert [name for name, _ in log] == ["exact", "service", "unary"]
    log.clear()
    bidi(channel, [b"1"])
    assert [name for name, _ in log] == ["service", "streams"]
    with pytest.raises(ValueError, match="kinds is empty"):
        channel.add_interceptor(Only(), kinds=[])


def test_names(channel: Channel) -> None:
    class Auth(Interceptor):
        def on_start(self, hop: Hop) -> None: ...

    tokens = [
        channel.add_interceptor(Auth()),
        channel.add_interceptor(Auth(), name="given"),
        channel.add_interceptor(recorder([], "own name")),
    ]
    assert [token.name for token in tokens] == ["Auth", "given", "own name"]
    assert [entry["name"] for entry in channel.interceptors] == ["Auth", "given", "own name"]
    assert "given" in repr(tokens[1])


def test_a_call_keeps_the_chain_it_began_with(channel: Channel) -> None:
    log: List[str] = []
    token = channel.add_interceptor(recorder(log, events=("on_receive",)))
    turn = threading.Semaphore(1)

    def requests() -> Iterator[bytes]:
        for number in b"1234":
            turn.acquire()
            yield bytes([number])

    call = channel.stream_stream("/penstock.Echo/Bidi")(requests())
    assert next(call) == b"1"
    token.remove()
    late = channel.add_interceptor(recorder(log, "late", ("on_receive",)))
    for _ in range(3):
        turn.release()
        next(call)
    assert log == ["on_receive"] * 4
    late.remove()
    log.clear()
    unary(channel)
    assert log == []


def test_adding_and_removing_while_calls_run(channel: Channel) -> None:
    stop = threading.Event()
    failures: List[BaseException] = []

    def calls() -> None:
        try:
            while not stop.is_set():
                assert unary(channel, b"data") == b"data"
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=calls) for _ in range(4)]
    for thread in threads:
        thread.start()
    seen: List[str] = []
    for number in range(200):
        token = channel.add_interceptor(recorder(seen, events=("on_start", "on_status")), priority=number % 7)
        token.priority = -number
        token.remove()
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert channel.interceptors == []


# ---- State and values ----


def test_create_gives_each_call_a_state(channel: Channel) -> None:
    log: List[Any] = []

    class Counting(Interceptor):
        def create(self, hop: Hop) -> Any:
            if hop.method.endswith("ServerStream"):
                return Verdict.SKIP
            assert hop.event is EventKind.CREATE
            return {"call": hop.call_id, "messages": 0}

        def on_receive(self, hop: Hop) -> None:
            hop.state["messages"] += 1

        def on_status(self, hop: Hop) -> None:
            hop.state = (hop.state["call"] == hop.call_id, hop.state["messages"])

        def destroy(self, hop: Hop) -> None:
            log.append(hop.state)

    channel.add_interceptor(Counting())
    unary(channel)
    bidi(channel, [b"1", b"2", b"3"])
    list(channel.unary_stream("/penstock.Echo/ServerStream")(b"x"))
    assert log == [(True, 1), (True, 3)]


def test_destroy_alone_and_create_alone(channel: Channel) -> None:
    log: List[Any] = []

    class End(Interceptor):
        def destroy(self, hop: Hop) -> None:
            log.append(hop.state)

    class Begin(Interceptor):
        def create(self, hop: Hop) -> Any:
            return "state"

        def on_status(self, hop: Hop) -> None:
            log.append(hop.state)

    channel.add_interceptor(End())
    channel.add_interceptor(Begin())
    unary(channel)
    assert sorted(log, key=str) == [None, "state"]


def test_without_create_there_is_no_state(channel: Channel) -> None:
    failures: List[str] = []

    def start(hop: Hop) -> None:
        for use in (lambda: hop.state, lambda: setattr(hop, "state", 1)):
            try:
                use()
            except AttributeError as error:
                failures.append(str(error))

    channel.add_interceptor(Only(on_start=start))
    unary(channel)
    assert len(failures) == 2
    assert "create" in failures[0]


def test_values_are_shared_with_hops_and_the_caller(channel: Channel) -> None:
    thing = object()

    def set_all(hop: Hop) -> None:
        hop.set_value("thing", thing)
        hop.set_value("replaced", 1)
        hop.set_value("replaced", 2)
        hop.set_value("removed", 1)
        hop.set_value("removed", None)

    seen: List[Any] = []
    channel.add_interceptor(Only(on_start=set_all), priority=1)
    channel.add_interceptor(Only(on_status=lambda hop: seen.append(hop.get_value("thing"))))
    _, outcome = channel.unary_unary("/penstock.Echo/Unary").with_call(b"x")
    assert seen == [thing]
    assert outcome.values["thing"] is thing
    assert outcome.values["replaced"] == 2
    assert "removed" not in outcome.values
    assert outcome.values.get("removed", "default") == "default"
    with pytest.raises(KeyError):
        outcome.values["never"]
    call = channel.stream_stream("/penstock.Echo/Bidi")([b"1"])
    list(call)
    assert call.values["thing"] is thing
    with pytest.raises(RpcError) as caught:
        channel.unary_unary("/penstock.Probe/Unary", json_bytes)({"code": 5})
    assert caught.value.values["thing"] is thing
